"""Services, one story each, composed of rules and storage."""
