/** Directory options as the user wrote them. */
export interface GivenDirectories {
  readonly state?: string;
  readonly run?: string;
}

const USUAL_STATE_DIR = "/var/lib/holdfast";
const USUAL_RUN_DIR = "/run/holdfast";

/** Returns the directory options that a command needs because they differ from the defaults. */
export function directoriesOf({
  stateDir,
  runDir,
}: {
  readonly stateDir: string;
  readonly runDir: string;
}): GivenDirectories {
  return {
    ...(stateDir === USUAL_STATE_DIR ? {} : { state: stateDir }),
    ...(runDir === USUAL_RUN_DIR ? {} : { run: runDir }),
  };
}

/** Returns a command to paste into a shell: `holdfast <words>` plus the given directory options that the verb accepts. */
export function holdfastCommand(words: string, { state, run }: GivenDirectories): string {
  const options = [
    ...(state === undefined ? [] : ["--state", shellWord(state)]),
    ...(run === undefined ? [] : ["--run", shellWord(run)]),
  ];
  return ["holdfast", words, ...options].join(" ");
}

/** Quotes one word for a POSIX shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
