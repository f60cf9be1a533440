"""The report: one HTML file that tells what a graph is, made of facts by functions without effects."""
