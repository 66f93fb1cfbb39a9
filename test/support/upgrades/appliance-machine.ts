import { execFile, execFileSync, spawn, type ChildProcess } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { waitFor } from "../wait-for.ts";

/** Where the controller is, seen from a machine, and where the machine is, seen from there. */
export const OUTSIDE_ADDRESS = "203.0.113.1";
export const MACHINE_ADDRESS = "203.0.113.2";

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string;
  readonly limitMs?: number;
}

const ROOT = join(import.meta.dirname, "appliance-root.sh");
const KEEPER = join(import.meta.dirname, "appliance-machine-keeper.sh");
/** The machine's root directory, as its keeper sees it. */
const DISK = "/run/machine/root";
/** What systemd-nspawn(1) ends with when the machine asks to be started again and nothing but us manages it. */
const REBOOT = 133;
const ENVIRONMENT = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"];
/** Node's pipes are sockets, for which bash believes itself started from afar and reads its user's start file. */
const PIPED = ["--norc", "-o", "pipefail", "-c"];
/** Joins the machine's control groups, and becomes the command. */
const JOINED = `for group in /sys/fs/cgroup/$0 /sys/fs/cgroup/*/$0; do [ ! -d "$group" ] || echo $$ > "$group/cgroup.procs"; done; exec "$@"`;

/** Whether machines can be made here; what is missing otherwise. */
export function lacksForMachines(): string | undefined {
  if (process.getuid?.() !== 0) return "machines need root";
  for (const tool of ["debootstrap", "systemd-nspawn"]) {
    try {
      execFileSync("sh", ["-c", `command -v ${tool}`], { stdio: "ignore" });
    } catch {
      return `machines need ${tool}`;
    }
  }
  return undefined;
}

/**
 * A machine of its own: Debian 12 with systemd as its process 1, a disk, a link `eth0` with an address of documentation, and on the
 * other end of that a network where `outside` runs commands. It can be started again, and lose its power. The caller removes it; if it
 * dies before, the machine goes with it.
 */
export class ApplianceMachine {
  readonly #mark: string;
  readonly #keeper: ChildProcess;
  readonly #id = randomUUID().replaceAll("-", "");
  #spawned: ChildProcess | undefined;
  #leader: number | undefined;
  #console = "";
  /** Set while the machine is meant to go off for good. */
  #isEnding = false;

  private constructor(keeper: ChildProcess, mark: string) {
    this.#keeper = keeper;
    this.#mark = mark;
  }

  /** Makes the machine, which takes minutes where none was made before, and starts it. */
  static async make(): Promise<ApplianceMachine> {
    const { stdout } = await promisify(execFile)(ROOT, { timeout: 600_000 });
    const mark = `hf-machine-${randomBytes(4).toString("hex")}`;
    const env = { ...process.env, MACHINE_ROOT: stdout.trim(), MACHINE_MARK: mark };
    const args = ["--mount", "--net", "--propagation", "private", "sh", KEEPER];
    const keeper = spawn("unshare", args, { env, stdio: ["pipe", "pipe", "inherit"], detached: true });
    const ended = once(keeper, "exit").then(() => Promise.reject(new Error("no machine could be made")));
    await Promise.race([once(keeper.stdout ?? keeper, "data"), ended]);
    ended.catch(() => undefined);
    const machine = new ApplianceMachine(keeper, mark);
    await machine.boot();
    return machine;
  }

  /** Put before a command line, runs it at the other end of the machine's link, on the test's own files; it ends with the machine. */
  get outside(): readonly string[] {
    return ["nsenter", ...this.#enter("-n"), "sh", "-c", JOINED, this.#mark];
  }

  /** Put before a command line, runs it on the machine as root there would. */
  get within(): readonly string[] {
    return ["nsenter", "-t", String(this.#leader ?? "off"), "-a", ...ENVIRONMENT];
  }

  /** What systemd said on the console in all starts. */
  get console(): string {
    return this.#console;
  }

  /** Turns it on, and waits until everything that starts by itself has. */
  async boot(): Promise<void> {
    this.#isEnding = false;
    // Of its links only the one to the bridge; nothing of the host's names, zone or journal.
    const nspawn =
      "systemd-nspawn --quiet --boot --machine=appliance --register=no --keep-unit --settings=no --console=read-only";
    const apart = "--network-bridge=lan --resolv-conf=off --timezone=off --link-journal=no";
    const own = [`--directory=${DISK}`, `--uuid=${this.#id}`];
    // The link of a machine that lost its power goes a little later by itself.
    const command = `ip link delete vb-appliance 2>/dev/null; exec setpriv --pdeathsig KILL ${nspawn} ${apart} "$@"`;
    const env = { ...process.env, SYSTEMD_COLORS: "0", TERM: "dumb" };
    const args = [...this.#enter("-m", "-n"), "sh", "-c", JOINED, this.#mark, "sh", "-c", command, "sh", ...own];
    const spawned = spawn("nsenter", args, { env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    this.#spawned = spawned;
    for (const stream of [spawned.stdout, spawned.stderr]) {
      stream.setEncoding("utf8").on("data", (said: string) => (this.#console += said));
    }
    spawned.once("exit", (code) => {
      this.#leader = undefined;
      if (code === REBOOT && !this.#isEnding) void this.boot().catch(() => undefined);
    });
    await this.#whileOn("systemd is there", () => {
      this.#leader = leaderOf(spawned.pid ?? 0);
      return this.#leader !== undefined || spawned.exitCode !== null;
    });
    await this.#untilOn(() => spawned.exitCode !== null);
  }

  /** Runs a line of shell on the machine, as root there would. */
  async run(line: string, options: RunOptions = {}): Promise<Ran> {
    return runCommand([...this.within, "sh", "-c", line], options);
  }

  /** The same, and fails with what it said where its status is not 0; gives what it printed. */
  async sh(line: string, options: RunOptions = {}): Promise<string> {
    const { code, stdout, stderr } = await this.run(line, options);
    if (code !== 0) throw new Error(`${line}\nended with ${code}: ${stdout}${stderr}`);
    return stdout;
  }

  /** Runs a line of shell at the other end of the machine's link. */
  async runOutside(line: string, options: RunOptions = {}): Promise<Ran> {
    return runCommand([...this.outside, "sh", "-c", line], options);
  }

  /** Waits until a line of shell ends with status 0; fails with what it said last. */
  async until(line: string, limitMs = 120_000): Promise<string> {
    let last: Ran | undefined;
    const isSo = async (): Promise<boolean> => {
      last = await this.run(line);
      return last.code === 0;
    };
    await waitFor(line, isSo, limitMs).catch((error: unknown) => {
      throw new Error(`in vain for: ${line}\n${last?.stdout ?? ""}${last?.stderr ?? ""}`, { cause: error });
    });
    return last?.stdout ?? "";
  }

  /** Which start of the machine this is. */
  async bootId(): Promise<string> {
    return (await this.sh("cat /proc/sys/kernel/random/boot_id")).trim();
  }

  /** Stops everything in order and starts it again, as a person's `reboot` does. */
  async reboot(): Promise<void> {
    const before = this.#spawned;
    await this.run("systemctl reboot");
    await waitFor("the machine goes down", () => this.#spawned !== before);
    const spawned = this.#spawned;
    await this.#untilOn(() => spawned?.exitCode !== null);
  }

  /** Waits until everything has started that starts by itself, unless it goes off again. */
  async #untilOn(isOff: () => boolean): Promise<void> {
    await this.#whileOn("the machine has started", async () => {
      if (isOff()) return true;
      return /^(running|degraded)$/m.test((await this.run("systemctl is-system-running --wait")).stdout);
    });
    if (isOff()) throw new Error(`the machine does not start:\n${this.#console.slice(-4000)}`);
  }

  /** Ends everything on it in the same instant; its disk keeps what was written. */
  async powerCut(): Promise<void> {
    this.#isEnding = true;
    const { exitCode, pid } = this.#spawned ?? {};
    const gone = this.#spawned === undefined || exitCode !== null ? undefined : once(this.#spawned, "exit");
    // With its process 1 the kernel ends all the others; that of systemd-nspawn alone would leave them.
    for (const one of [this.#leader, pid]) if (one !== undefined) endProcess(one);
    await gone;
    this.#leader = undefined;
  }

  /** Copies a file of the test's, or a directory with all that is in it, to a path on the machine. */
  async copyIn(path: string, to: string): Promise<void> {
    const line = `tar -C '${dirname(path)}' --owner=0 --group=0 --transform='s,^${basename(path)},${basename(to)},' -cf - '${basename(path)}'`;
    await promisify(execFile)("bash", [
      ...PIPED,
      `${line} | "$@"`,
      "bash",
      ...this.within,
      "tar",
      "-C",
      dirname(to),
      "-xf",
      "-",
    ]);
  }

  /** Copies a file or directory of the machine's into a directory of the test's. */
  async copyOut(path: string, into: string): Promise<void> {
    const from = [...this.within, "tar", "-C", dirname(path), "-cf", "-", basename(path)];
    await promisify(execFile)("bash", [...PIPED, `"$@" | tar -C '${into}' -xf -`, "bash", ...from]);
  }

  /** What a unit wrote to the journal, in all starts or since the machine's last one. */
  journal(unit: string, { allBoots = false } = {}): Promise<string> {
    return this.sh(`journalctl --no-pager --output=short-monotonic ${allBoots ? "" : "--boot"} --unit='${unit}'`);
  }

  /** One property of a unit, as systemctl(1) shows it. */
  async property(unit: string, name: string): Promise<string> {
    return (await this.sh(`systemctl show --value --property=${name} '${unit}'`)).trim();
  }

  /**
   * Puts a process of the machine under a limit of memory that it goes beyond with whatever it does next, so that the kernel ends it, as
   * it does where a unit's own limit is reached; control groups of version 1 cannot be handed to a machine.
   */
  async starve(pid: number, limitBytes = 1 << 20): Promise<void> {
    const group = `/sys/fs/cgroup/memory/${this.#mark}/starved-${pid}`;
    execFileSync("mkdir", [group]);
    writeFileSync(`${group}/memory.limit_in_bytes`, String(limitBytes));
    writeFileSync(`${group}/cgroup.procs`, String(await this.#outerPid(pid)));
  }

  /** Takes it away with everything on it and beside it. */
  async remove(): Promise<void> {
    await this.powerCut();
    const gone = once(this.#keeper, "exit");
    this.#keeper.stdin?.end();
    await gone;
  }

  /** What the test sees a process of the machine as. */
  async #outerPid(pid: number): Promise<number> {
    const outer = readdirSync("/proc").find((name) => /^\d+$/.test(name) && innerPid(name, this.#leader) === pid);
    return Promise.resolve(Number(outer ?? Number.NaN));
  }

  #enter(...namespaces: readonly string[]): readonly string[] {
    return ["-t", String(this.#keeper.pid), ...namespaces];
  }

  async #whileOn(what: string, probe: () => boolean | Promise<boolean>): Promise<void> {
    await waitFor(what, probe).catch((error: unknown) => {
      throw new Error(`in vain for: ${what}\n${this.#console.slice(-4000)}`, { cause: error });
    });
  }
}

/** Runs a command to its end; one that takes longer than its limit is killed, and has no code. */
async function runCommand(
  [file = "", ...args]: readonly string[],
  { input, limitMs = 120_000 }: RunOptions,
): Promise<Ran> {
  const child = spawn(file, args, { stdio: ["pipe", "pipe", "pipe"], timeout: limitMs, killSignal: "SIGKILL" });
  child.stdin.on("error", () => undefined).end(input);
  const closed = once(child, "close");
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  await closed;
  return { code: child.exitCode, stdout, stderr };
}

/** The process 1 of the machine that a systemd-nspawn runs, once it is there. */
function leaderOf(pid: number): number | undefined {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
    return children.map(Number).find((child) => lastOf(child, "NSpid") === 1);
  } catch {
    return undefined;
  }
}

/** The number of a process in the machine with that process 1. */
function innerPid(name: string, leader: number | undefined): number | undefined {
  try {
    const spaceOf = (pid: string): string => execFileSync("readlink", [`/proc/${pid}/ns/pid`], { encoding: "utf8" });
    return spaceOf(name) === spaceOf(String(leader)) ? lastOf(Number(name), "NSpid") : undefined;
  } catch {
    return undefined;
  }
}

function lastOf(pid: number, field: string): number | undefined {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const numbers = new RegExp(`^${field}:\\s(.*)$`, "m").exec(status)?.[1]?.trim().split(/\s+/);
  return numbers === undefined || numbers.length < 2 ? undefined : Number(numbers.at(-1));
}

function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}
