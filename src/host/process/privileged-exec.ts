import { randomBytes } from "node:crypto";
import { isFound, type CommandLine } from "./death-tie.ts";
import { SEARCH_PATH, startError, type Exec, type Spawned } from "./exec.ts";

/**
 * Runs tools that need more privileges than this program's unit has, such as those that mount, or enter or make namespaces. A
 * managed install runs them as transient systemd units; otherwise `exec` runs them. Output, exit status and standard input are
 * the tool's own.
 */
export function privilegedExec(exec: Pick<Exec, "run">, isManaged: boolean): Pick<Exec, "run"> {
  if (!isManaged) return exec;
  return {
    run(file, args, options) {
      const command = privilegedCommand({ file, args }, options.deadlineMs);
      return exec.run(command.file, command.args, options);
    },
  };
}

/**
 * Returns the command line that runs a tool with all privileges in a managed install. The tool gets the standard streams of
 * systemd-run(1).
 */
export function privilegedCommand({ file, args }: CommandLine, deadlineMs: number): CommandLine {
  // If the caller is killed, the unit stops at its deadline.
  const properties = [`RuntimeMaxSec=${Math.ceil(deadlineMs / 1000)}`];
  return { file: "systemd-run", args: transient(unitName(), properties, file, args) };
}

/** Limits of a unit that may write the files of user 0 in one directory and nothing else. */
const WRITING = [
  "CapabilityBoundingSet=",
  "NoNewPrivileges=yes",
  "ProtectSystem=strict",
  "ProtectHome=yes",
  "PrivateDevices=yes",
  "ProtectKernelTunables=yes",
  "ProtectControlGroups=yes",
  "RestrictAddressFamilies=AF_UNIX",
  "RestrictNamespaces=yes",
  "MemoryMax=256M",
  "RuntimeMaxSec=60",
];

/**
 * Returns the command line that runs the program that changes the resolver's file in a managed install. The program can write
 * only below `directory`.
 */
export function resolverFileCommand(directory: string, { file, args }: CommandLine): CommandLine {
  // If the unit has a root directory of its own, the path is within it.
  const properties = [...WRITING, `ReadWritePaths=+${directory}`];
  return { file: "systemd-run", args: transient(unitName(), properties, file, args) };
}

/** Properties of a unit with a dynamic user, which may only capture packets. */
const CAPTURING = [
  "DynamicUser=yes",
  "AmbientCapabilities=CAP_NET_RAW",
  "CapabilityBoundingSet=CAP_NET_RAW",
  "NoNewPrivileges=yes",
  "PrivateDevices=yes",
  "ProtectHome=yes",
  "RestrictNamespaces=yes",
  "MemoryMax=256M",
  // Log only errors and notices of the manager, because probes run every minute.
  "LogLevelMax=notice",
  "KillSignal=SIGINT",
  "TimeoutStopSec=1s",
];
const STOP = { deadlineMs: 10_000, maxOutputBytes: 16_384 };

/**
 * Starts tools that capture packets or send raw ones. In a managed install, whose `unit` runs this program, they run as transient
 * units with a user of their own and stop with `unit`. Otherwise they would drop root's privileges, which that unit forbids.
 * Without `unit`, `exec` starts them.
 */
export function captureExec(exec: Exec, unit: string | undefined): Exec {
  if (unit === undefined) return exec;
  const properties = [...CAPTURING, `BindsTo=${unit}`];
  return {
    async run(file, args, options) {
      requireTool(file);
      const limited = [...properties, `RuntimeMaxSec=${Math.ceil(options.deadlineMs / 1000)}`];
      return exec.run("systemd-run", transient(unitName(), limited, file, args), options);
    },
    spawn(file, args, options) {
      requireTool(file);
      const name = unitName();
      const command = transient(name, properties, file, args);
      // systemd-run waits for the unit and reports the tool's exit status, so the signal stops the unit and not systemd-run.
      const signal = options.signal.aborted ? options.signal : new AbortController().signal;
      const tool = exec.spawn("systemd-run", command, { ...options, signal });
      let isOver = false;
      const stop = (): void => {
        if (isOver) return;
        isOver = true;
        const stopping = { ...STOP, signal: new AbortController().signal };
        const stopped = exec.run("systemctl", ["stop", "--", `${name}.service`], stopping);
        const isStopped = stopped.then(({ exitCode }) => exitCode === 0);
        void isStopped.catch(() => false).then((hasUnit) => (hasUnit ? undefined : tool.kill()));
      };
      options.signal.addEventListener("abort", stop, { once: true });
      // `isOver` is set before the caller sees the exit.
      const exitCode = tool.exitCode.finally(() => {
        isOver = true;
        options.signal.removeEventListener("abort", stop);
      });
      exitCode.catch(() => undefined);
      return { ...tool, exitCode, kill: stop } satisfies Spawned;
    },
  };
}

/** Reports a missing tool by its own name instead of as a failure of systemd-run(1). @throws {HostError} `tool-missing`. */
function requireTool(file: string): void {
  if (!isFound(file, SEARCH_PATH)) throw startError(file, Object.assign(new Error("not found"), { code: "ENOENT" }));
}

const unitName = (): string => `holdfast-tool-${randomBytes(6).toString("hex")}`;

function transient(unit: string, properties: readonly string[], file: string, args: readonly string[]): string[] {
  const about = ["--quiet", "--collect", "--wait", "--pipe", "--service-type=exec", `--unit=${unit}`];
  const all = ["SyslogIdentifier=holdfast-tool", ...properties].map((property) => `--property=${property}`);
  return [...about, ...all, "--setenv=LC_ALL=C", "--", file, ...args];
}
