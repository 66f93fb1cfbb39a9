/** The directories that a command was given, as they were written. */
export interface GivenDirectories {
  readonly state?: string;
  readonly run?: string;
}

const USUAL_STATE_DIR = "/var/lib/holdfast";
const USUAL_RUN_DIR = "/run/holdfast";

/** The directories that an operator must add to a command about a node, since they are not the default ones. */
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

/** A command to copy into a shell: `holdfast <words>` with the directories that the verb takes and that were given. */
export function holdfastCommand(words: string, { state, run }: GivenDirectories): string {
  const options = [
    ...(state === undefined ? [] : ["--state", shellWord(state)]),
    ...(run === undefined ? [] : ["--run", shellWord(run)]),
  ];
  return ["holdfast", words, ...options].join(" ");
}

/** One word as a POSIX shell takes it. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
