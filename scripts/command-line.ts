import { parseArgs, type ParseArgsConfig } from "node:util";

/** A program of scripts/: its name as a person types it, and its usage text. */
export interface Program {
  readonly name: string;
  readonly usage: string;
}

/** Parses the command line. With `--help` it prints the usage and exits with 0; an unknown option exits with 2. */
export function readCommand<const T extends ParseArgsConfig>(
  program: Program,
  config: T,
): ReturnType<typeof parseArgs<T>> {
  const args = process.argv.slice(2);
  if (args.some((arg) => arg === "--help" || arg === "-h")) {
    console.log(program.usage);
    process.exit(0);
  }
  try {
    return parseArgs(config);
  } catch (error) {
    return misuse(program, error instanceof Error ? (error.message.split(/[.\n]/)[0] ?? "") : String(error));
  }
}

/** Prints one line and exits with 2, the status of a wrong command line. */
export function misuse({ name }: Program, message: string): never {
  console.error(`${name}: ${message}; --help shows the usage`);
  process.exit(2);
}
