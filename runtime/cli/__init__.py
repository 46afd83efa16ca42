"""The command line: subcommands, options, help, completion, output."""
