"""The command line: one file a command. Whatever is slow to import is imported inside the command."""
