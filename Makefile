# The developer commands are in dev.py; this is for those who type make.
.PHONY: bench

bench:
	python3 dev.py bench-page
