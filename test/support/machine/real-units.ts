// Starts our programs as systemd services, confined as the shipped units confine them. Used only in the machine of scripts/test-units.
import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Whether agents and overlays of tests run as their units. */
export const UNDER_UNITS = process.env["HOLDFAST_TEST_UNITS"] === "1";

export interface UnitStart {
  /** `node`, its flags, the bundle, the verb and its options. */
  readonly command: readonly string[];
  /** The command prefix used otherwise: its network, files and environment are set in the unit. */
  readonly within?: readonly string[];
  readonly env?: NodeJS.ProcessEnv | undefined;
  /** File for its output. */
  readonly log: string;
  /** Whether an overlay is restarted when it exits; one beside an agent always is. */
  readonly isKept?: boolean;
}

type Kind = "agent" | "overlay";

const SYSTEMD = join(import.meta.dirname, "../../../systemd");
const PLACE_OF = join(import.meta.dirname, "place-of.py");
/** Records of running units, readable by the machine's `systemd-run` too; some programs have a /run of their own. */
const KNOWN = "/t/units";
const PLACES = "/run/holdfast-places";
/** Directory for the files of tests, outside /tmp, of which each unit has its own. */
const TESTS = "/t";
const MANAGED_OVERLAY_RUN = "/run/holdfast-overlay";

/**
 * Settings that differ in tests: the command, the restarts, and the directories, which each agent has its own. Overlays run as root without
 * capabilities, since root owns those directories.
 */
const OTHERWISE =
  /^(Exec\w+|Restart\w*|SuccessExitStatus|Environment|Sys?logIdentifier|LogExtraFields|(State|Runtime|Configuration)Directory\w*|SupplementaryGroups)$/;
const OF_OVERLAY = /^(User|Group|AmbientCapabilities)$/;
const AGAIN = ["Restart=always", "RestartSec=500ms", "SuccessExitStatus=80", "RestartPreventExitStatus=80"];
/** Properties whose paths are as seen by the unit. */
const PATHS = /^(ReadWritePaths|InaccessiblePaths)$/;

/** Returns the properties that confine a unit's program. */
function propertiesOf(kind: Kind): readonly string[] {
  const text = readFileSync(join(SYSTEMD, `holdfast-${kind}.service`), "utf8");
  const service = /^\[Service\]\n([^]*?)(?=^\[)/m.exec(text)?.[1] ?? "";
  return service
    .split("\n")
    .filter((line) => /^\w+=/.test(line))
    .flatMap((line) => {
      const [, name = "", value = ""] = /^(\w+)=(.*)$/.exec(line) ?? [];
      if (OTHERWISE.test(name) || (kind === "overlay" && OF_OVERLAY.test(name))) return [];
      return [`${name}=${PATHS.test(name) ? value.replaceAll(/(^| )(-?)\//g, "$1$2+/") : value}`];
    });
}

/** Starts an agent and, unless its own runs, the overlay beside it. */
export function startAgentUnit(start: UnitStart): ChildProcess {
  const [stateDir, runDir] = [optionOf(start.command, "--state"), optionOf(start.command, "--run")];
  const place = placeOf(start, runDir);
  const overlayState = join(stateDir, "overlay");
  const at = start.command.indexOf("agent");
  const overlay = unitName("overlay", runDir);
  if (!isServed(runDir)) {
    for (const dir of [overlayState, runDir]) mkdirSync(dir, { recursive: true, mode: 0o700 });
    const args = ["overlay", "--state", overlayState, "--run", runDir, "--successor"];
    const log = join(overlayState, "overlay.log");
    run("overlay", overlay, { ...start, command: [...start.command.slice(0, at), ...args], log }, [...place, ...AGAIN]);
  }
  const unit = unitName("agent", `${runDir}/${randomBytes(4).toString("hex")}`);
  const properties = [
    ...place,
    `Environment=HOLDFAST_UNIT=${unit}`,
    `BindPaths=${runDir}:${MANAGED_OVERLAY_RUN}`,
    `SupplementaryGroups=holdfast-overlay`,
  ];
  return run("agent", unit, start, properties);
}

/** Reports whether an overlay of that directory runs: the one beside an agent, a successor, or the test itself. */
function isServed(runDir: string): boolean {
  if (execFileSync("ss", ["-xlHn", "src", join(runDir, "overlay.sock")], { encoding: "utf8" }) !== "") return true;
  const name = `holdfast-test-overlay-${plain(runDir)}`;
  const listing = [
    "list-units",
    "--no-legend",
    "--state=active,activating,deactivating",
    `${name}.service`,
    `${name}_*.service`,
  ];
  return execFileSync("systemctl", listing, { encoding: "utf8" }) !== "";
}

/** Starts an overlay only. */
export function startOverlayUnit(start: UnitStart): ChildProcess {
  const runDir = optionOf(start.command, "--run");
  const unit = unitName("overlay", `${runDir}/${randomBytes(4).toString("hex")}`);
  return run("overlay", unit, start, [...placeOf(start, runDir), ...(start.isKept === true ? AGAIN : [])]);
}

/** Starts the agent or overlay of a command line as its unit, and nothing else. */
export function startAsUnit(start: UnitStart): ChildProcess | undefined {
  const verb = start.command.find((word) => ["agent", "overlay", "controller"].includes(word));
  if (!UNDER_UNITS || !start.command.some((word) => word.endsWith("/holdfast.mjs"))) return undefined;
  if (verb === "agent") return startAgentUnit(start);
  return verb === "overlay" ? startOverlayUnit(start) : undefined;
}

/** Ends all units of programs with files below a directory. */
export function endUnitsBelow(dir: string): void {
  if (!UNDER_UNITS) return;
  const units = [`holdfast-test-*-${plain(dir)}.service`, `holdfast-test-*-${plain(dir)}_*.service`];
  const systemctl = (...args: readonly string[]): void =>
    void spawnSync("systemctl", ["--quiet", ...args, ...units], { stdio: "ignore" });
  systemctl("kill", "--signal=KILL");
  systemctl("stop");
  systemctl("reset-failed");
  const places = existsSync(PLACES) ? readdirSync(PLACES).filter((name) => name.startsWith(`${plain(dir)}_`)) : [];
  for (const place of places) spawnSync("umount", ["-Rl", join(PLACES, place)], { stdio: "ignore" });
}

const plain = (path: string): string => path.replaceAll(/[^A-Za-z0-9]/g, "_");
const unitName = (kind: Kind, path: string): string => `holdfast-test-${kind}-${plain(path)}.service`;

function optionOf(command: readonly string[], option: string): string {
  const value = command[command.indexOf(option) + 1];
  if (!command.includes(option) || value === undefined) throw new Error(`no ${option}: ${command.join(" ")}`);
  return value;
}

/** Returns network, files and environment of a command prefix as properties; their creator is held until the machine ends. */
function placeOf({ within = [], env }: UnitStart, runDir: string): readonly string[] {
  const given = Object.entries(env ?? {}).filter(([name, value]) => value !== process.env[name] || name === "PATH");
  const own = [`ReadWritePaths=+${TESTS}`];
  if (within.length === 0) return [...own, ...given.map(assignment)];
  const mark = randomBytes(6).toString("hex");
  const ready = join(KNOWN, `${mark}.pid`);
  // Root needs no user namespace, in which mounts of other units could not be unmounted.
  const asRoot = within.map((word, at) =>
    within[0] === "unshare" && at === 1 ? word.replace(/^-r(?=[mn])/, "-") : word,
  );
  const [file, ...args] = [
    ...asRoot,
    "sh",
    "-c",
    `echo $$ > ${ready}.new && mv ${ready}.new ${ready} && exec sleep infinity`,
  ];
  const holder = spawn(file, args, { env, stdio: "ignore", detached: true });
  holder.unref();
  execFileSync("timeout", ["30", "sh", "-c", `until [ -s ${ready} ]; do sleep 0.02; done`]);
  const pid = readFileSync(ready, "utf8").trim();
  const before = env ?? process.env;
  const added = readFileSync(`/proc/${pid}/environ`, "utf8")
    .split("\0")
    .map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)] as const)
    .filter(([name, value]) => name !== "" && !/^(PWD|OLDPWD|SHLVL|_)$/.test(name) && before[name] !== value);
  const isOther = (space: string): boolean =>
    readlinkSync(`/proc/${pid}/ns/${space}`) !== readlinkSync(`/proc/self/ns/${space}`);
  const root = join(PLACES, `${plain(runDir)}_${mark}`);
  if (isOther("mnt")) execFileSync("python3", [PLACE_OF, pid, root]);
  return [
    ...own,
    ...(isOther("net") ? [`NetworkNamespacePath=/proc/${pid}/ns/net`] : []),
    ...(isOther("mnt") ? [`RootDirectory=${root}`, "BindPaths=/run/systemd /run/dbus"] : []),
    ...[...given, ...added].map(assignment),
  ];
}

function assignment([name, value]: readonly [string, string | undefined]): string {
  return `Environment="${name}=${(value ?? "").replaceAll(/["\\]/g, "\\$&").replaceAll("%", "%%")}"`;
}

function run(kind: Kind, unit: string, { command, log }: UnitStart, properties: readonly string[]): ChildProcess {
  const end = join(KNOWN, `${unit}.end`);
  spawnSync("mkfifo", [end], { stdio: "ignore" });
  // Properties that tools, which are units themselves, need too.
  const place = properties.filter((property) => /^(NetworkNamespacePath|RootDirectory|BindPaths)=/.test(property));
  writeFileSync(join(KNOWN, `${unit}.place`), place.map((property) => `--property=${property}\n`).join(""));
  const all = [
    ...propertiesOf(kind),
    ...properties,
    `StandardOutput=append:${log}`,
    `StandardError=append:${log}`,
    `ExecStopPost=+/bin/sh -c 'echo "$EXIT_CODE $EXIT_STATUS" 1<>${end}'`,
  ];
  const waiter = spawn("sh", ["-c", WAITING, end], { stdio: "ignore" });
  const about = ["--quiet", "--no-block", "--collect", `--unit=${unit}`];
  execFileSync("systemd-run", [...about, ...all.map((property) => `--property=${property}`), "--", ...command]);
  const pid = mainPid(unit);
  Object.defineProperty(waiter, "pid", { value: pid });
  waiter.kill = (signal) => {
    if (waiter.exitCode !== null || waiter.signalCode !== null || pid === 0) return false;
    try {
      return process.kill(pid, signal);
    } catch {
      return false;
    }
  };
  return waiter;
}

/** Exits with the status of the unit's program. */
const WAITING = 'read -r how what < "$0"; rm -f "$0"; [ "$how" = exited ] && exit "$what"; kill -s "$what" $$; exit 1';

function mainPid(unit: string): number {
  for (let look = 0; look < 200; look += 1) {
    const pid = Number(
      execFileSync("systemctl", ["show", "--value", "--property=ExecMainPID", unit], { encoding: "utf8" }),
    );
    if (pid > 0) return pid;
  }
  return 0;
}
