"""The command line. Each module holds the commands of one subject; `main` puts them together."""
