/** The two threads of a program: SQLite and sockets use the main one, `node:fs/promises` the pool. */
export type Thread = "main" | "pool";

/** One system call as printed by strace, arguments decoded. */
export interface Call {
  readonly thread: Thread;
  readonly name: string;
  /** The arguments as printed, without the outer parentheses; strings are still in hexadecimal. */
  readonly args: string;
  /** The result: a number, and the path of a descriptor; undefined when the call never returned. */
  readonly result: number | undefined;
}

const LINE = /^(?:(\d+)\s+)?(\w+)\((.*)\)\s+= (-?\d+|\?|0x[0-9a-f]+)/s;
const UNFINISHED = /^(?:(\d+)\s+)?(\w+)\((.*?)\s*<unfinished \.\.\.>$/s;
const RESUMED = /^(?:(\d+)\s+)?<\.\.\. (\w+) resumed>(.*)$/s;

/**
 * Parses the output of `strace -y -xx`. A call interrupted by another thread has the place of its end.
 * @param threadOf maps thread ids; lines without an id are of the only traced thread.
 */
export function parseTrace(text: string, threadOf: (tid: number | undefined) => Thread): readonly Call[] {
  const calls: Call[] = [];
  const begun = new Map<string, string>();
  for (const line of text.split("\n")) {
    const unfinished = UNFINISHED.exec(line);
    if (unfinished !== null) {
      begun.set(unfinished[1] ?? "", `${unfinished[2]}(${unfinished[3]}`);
      continue;
    }
    const resumed = RESUMED.exec(line);
    const whole =
      resumed === null ? line : `${resumed[1] ?? ""} ${begun.get(resumed[1] ?? "") ?? ""}${resumed[3]}`.trim();
    const match = LINE.exec(whole);
    if (match === null) continue;
    const [, tid, name = "", args = "", result = "?"] = match;
    calls.push({
      thread: threadOf(tid === undefined ? undefined : Number(tid)),
      name,
      args,
      result: result === "?" ? undefined : Number(result),
    });
  }
  return calls;
}

/** Returns the bytes of the strings among the arguments, in order. */
export function stringsOf({ args }: Call): readonly Buffer[] {
  return [...args.matchAll(/"((?:\\x[0-9a-f]{2})*)"/g)].map(([, hex = ""]) =>
    Buffer.from(hex.replaceAll("\\x", ""), "hex"),
  );
}

/** Returns the path of the first argument if that is a descriptor. */
export function descriptorPath({ args }: Call): string | undefined {
  const [, text] = /^\d+<([^>]*)>/.exec(args) ?? [];
  return text === undefined
    ? undefined
    : Buffer.from(
        text.replaceAll(/\\x([0-9a-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16))),
        "latin1",
      ).toString();
}

const FD_CALLS: ReadonlySet<string> = new Set([
  "write",
  "pwrite64",
  "writev",
  "pwritev",
  "fsync",
  "fdatasync",
  "ftruncate",
  "fallocate",
]);
const PATH_CALLS: ReadonlySet<string> = new Set(["rename", "unlink", "mkdir", "chmod", "rmdir", "truncate"]);

/** Calls that change a file or a connection. */
export const CHANGING: readonly string[] = [
  ...FD_CALLS,
  ...PATH_CALLS,
  "openat",
  "open",
  "renameat",
  "renameat2",
  "unlinkat",
  "mkdirat",
  "connect",
];

/** Returns the file that a call changes, if any. */
export function changedPath(call: Call): string | undefined {
  if (FD_CALLS.has(call.name)) return descriptorPath(call);
  const isOpen = call.name === "openat" || call.name === "open";
  if (isOpen && !/O_WRONLY|O_RDWR|O_CREAT|O_TRUNC/.test(call.args)) return undefined;
  if (call.name === "connect") return undefined;
  return stringsOf(call)[0]?.toString();
}
