import { execFile, execFileSync, spawn, type ChildProcess } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { waitFor } from "../wait-for.ts";

/** Address of the controller, seen from a machine, and of the machine, seen from there. */
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
const SUPERVISOR = join(import.meta.dirname, "appliance-machine-keeper.sh");
/** The machine's root directory, as seen by its supervisor. */
const DISK = "/run/machine/root";
/** Exit status of systemd-nspawn(1) when the machine reboots without another manager. */
const REBOOT = 133;
const ENVIRONMENT = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"];
/** Node's pipes are sockets, for which bash assumes a remote shell and reads its user's start file. */
const PIPED = ["--norc", "-o", "pipefail", "-c"];
/** Enters the machine's control groups, and executes the command. */
const JOINED = `for group in /sys/fs/cgroup/$0 /sys/fs/cgroup/*/$0; do [ ! -d "$group" ] || echo $$ > "$group/cgroup.procs"; done; exec "$@"`;

/** Returns what prevents machines from being made here, if anything. */
export function missingForMachines(): string | undefined {
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
 * A machine: Debian 12 with systemd as process 1, a disk, a link `eth0` with a documentation address, and a network at the other end where
 * `outside` runs commands. Supports restarts and power cuts. The caller removes it; if the caller dies, the machine ends.
 */
export class ApplianceMachine {
  readonly #mark: string;
  readonly #supervisor: ChildProcess;
  readonly #id = randomUUID().replaceAll("-", "");
  #spawned: ChildProcess | undefined;
  #leader: number | undefined;
  #console = "";
  /** Whether the machine is being stopped permanently. */
  #isEnding = false;

  private constructor(supervisor: ChildProcess, mark: string) {
    this.#supervisor = supervisor;
    this.#mark = mark;
  }

  /** Makes the machine, which is off; this takes minutes the first time. Its disk is new, or begins as the one kept at a path. */
  static async make(disk?: string): Promise<ApplianceMachine> {
    const { stdout } = await promisify(execFile)(ROOT, { timeout: 600_000 });
    const mark = `hf-machine-${randomBytes(4).toString("hex")}`;
    const root = [...(disk === undefined ? [] : [disk]), stdout.trim()].join(":");
    const env = { ...process.env, MACHINE_ROOT: root, MACHINE_MARK: mark };
    const args = ["--mount", "--net", "--propagation", "private", "sh", SUPERVISOR];
    const supervisor = spawn("unshare", args, { env, stdio: ["pipe", "pipe", "inherit"], detached: true });
    const ended = once(supervisor, "exit").then(() => Promise.reject(new Error("no machine could be made")));
    await Promise.race([once(supervisor.stdout ?? supervisor, "data"), ended]);
    ended.catch(() => undefined);
    return new ApplianceMachine(supervisor, mark);
  }

  /** A command prefix that runs at the other end of the machine's link, on the test's own files; it ends with the machine. */
  get outside(): readonly string[] {
    return ["nsenter", ...this.#enter("-n"), "sh", "-c", JOINED, this.#mark];
  }

  /** A command prefix that runs on the machine as root. */
  get within(): readonly string[] {
    return ["nsenter", "-t", String(this.#leader ?? "off"), "-a", ...ENVIRONMENT];
  }

  /** Returns systemd's console output of all starts. */
  get console(): string {
    return this.#console;
  }

  /** Starts it, and waits until everything has started. */
  async boot(): Promise<void> {
    this.#isEnding = false;
    // Only the link to the bridge; none of the host's names, zone or journal.
    const nspawn =
      "systemd-nspawn --quiet --boot --machine=appliance --register=no --keep-unit --settings=no --console=read-only";
    const apart = "--network-bridge=lan --resolv-conf=off --timezone=off --link-journal=no";
    const own = [`--directory=${DISK}`, `--uuid=${this.#id}`];
    // The link of a machine without power disappears a little later.
    const command = `ip link delete vb-appliance 2>/dev/null; exec setpriv --pdeathsig KILL ${nspawn} ${apart} "$@"`;
    const env = { ...process.env, SYSTEMD_COLORS: "0", TERM: "dumb" };
    const args = [...this.#enter("-m", "-n"), "sh", "-c", JOINED, this.#mark, "sh", "-c", command, "sh", ...own];
    const spawned = spawn("nsenter", args, { env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    this.#spawned = spawned;
    for (const stream of [spawned.stdout, spawned.stderr]) {
      stream.setEncoding("utf8").on("data", (printed: string) => (this.#console += printed));
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

  /** Runs a shell line on the machine as root. */
  async run(line: string, options: RunOptions = {}): Promise<Ran> {
    return runCommand([...this.within, "sh", "-c", line], options);
  }

  /** Runs a shell line, and fails with its output on a status other than 0; returns its output. */
  async sh(line: string, options: RunOptions = {}): Promise<string> {
    const { code, stdout, stderr } = await this.run(line, options);
    if (code !== 0) throw new Error(`${line}\nended with ${code}: ${stdout}${stderr}`);
    return stdout;
  }

  /** Runs a shell line at the other end of the machine's link. */
  async runOutside(line: string, options: RunOptions = {}): Promise<Ran> {
    return runCommand([...this.outside, "sh", "-c", line], options);
  }

  /** Waits until a shell line exits with status 0; fails with its last output. */
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

  /** Returns the boot id of the machine. */
  async bootId(): Promise<string> {
    return (await this.sh("cat /proc/sys/kernel/random/boot_id")).trim();
  }

  /** Stops everything in order and starts it again, as `reboot` does. */
  async reboot(): Promise<void> {
    const before = this.#spawned;
    await this.run("systemctl reboot");
    await waitFor("the machine goes down", () => this.#spawned !== before);
    const spawned = this.#spawned;
    await this.#untilOn(() => spawned?.exitCode !== null);
  }

  /** Waits until everything has started, unless it stops again. */
  async #untilOn(isOff: () => boolean): Promise<void> {
    await this.#whileOn("the machine has started", async () => {
      if (isOff()) return true;
      return /^(running|degraded)$/m.test((await this.run("systemctl is-system-running --wait")).stdout);
    });
    if (isOff()) throw new Error(`the machine does not start:\n${this.#console.slice(-4000)}`);
  }

  /** Kills everything on it at once; its disk keeps what was written. */
  async powerCut(): Promise<void> {
    this.#isEnding = true;
    const { exitCode, pid } = this.#spawned ?? {};
    const gone = this.#spawned === undefined || exitCode !== null ? undefined : once(this.#spawned, "exit");
    // With its process 1 the kernel kills all others; that of systemd-nspawn alone would leave them.
    for (const one of [this.#leader, pid]) if (one !== undefined) endProcess(one);
    await gone;
    this.#leader = undefined;
  }

  /** Stops everything in order, and keeps the disk at a path, from which other machines can be made. */
  async keepDisk(at: string): Promise<void> {
    const spawned = this.#spawned;
    await this.run("systemctl poweroff");
    await this.#whileOn("the machine is off", () => spawned?.exitCode !== null);
    await promisify(execFile)("cp", ["-a", `/proc/${this.#supervisor.pid}/root/run/machine/upper`, at]);
  }

  /** Copies a file or directory of the test to a path on the machine. */
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

  /** Copies a file or directory of the machine into a directory of the test. */
  async copyOut(path: string, into: string): Promise<void> {
    const from = [...this.within, "tar", "-C", dirname(path), "-cf", "-", basename(path)];
    await promisify(execFile)("bash", [...PIPED, `"$@" | tar -C '${into}' -xf -`, "bash", ...from]);
  }

  /** Returns a unit's journal, of all starts or since the last one. */
  journal(unit: string, { allBoots = false } = {}): Promise<string> {
    return this.sh(`journalctl --no-pager --output=short-monotonic ${allBoots ? "" : "--boot"} --unit='${unit}'`);
  }

  /** Returns one property of a unit, as shown by systemctl(1). */
  async property(unit: string, name: string): Promise<string> {
    return (await this.sh(`systemctl show --value --property=${name} '${unit}'`)).trim();
  }

  /**
   * Limits the memory of a process of the machine below its use, so that the kernel kills it, as when a unit's own limit is reached;
   * control groups of version 1 cannot be delegated to a machine.
   */
  async starve(pid: number, limitBytes = 1 << 20): Promise<void> {
    const group = `/sys/fs/cgroup/memory/${this.#mark}/starved-${pid}`;
    execFileSync("mkdir", [group]);
    writeFileSync(`${group}/memory.limit_in_bytes`, String(limitBytes));
    writeFileSync(`${group}/cgroup.procs`, String(await this.#outerPid(pid)));
  }

  /** Removes it with everything on it and beside it. */
  async remove(): Promise<void> {
    await this.powerCut();
    const gone = once(this.#supervisor, "exit");
    this.#supervisor.stdin?.end();
    await gone;
  }

  /** Returns the outer process id of a process of the machine. */
  async #outerPid(pid: number): Promise<number> {
    const outer = readdirSync("/proc").find((name) => /^\d+$/.test(name) && innerPid(name, this.#leader) === pid);
    return Promise.resolve(Number(outer ?? Number.NaN));
  }

  #enter(...namespaces: readonly string[]): readonly string[] {
    return ["-t", String(this.#supervisor.pid), ...namespaces];
  }

  async #whileOn(what: string, probe: () => boolean | Promise<boolean>): Promise<void> {
    await waitFor(what, probe).catch((error: unknown) => {
      throw new Error(`in vain for: ${what}\n${this.#console.slice(-4000)}`, { cause: error });
    });
  }
}

/** Runs a command to its end; one beyond its time limit is killed, and has no code. */
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

/** Returns process 1 of the machine of a systemd-nspawn, once started. */
function leaderOf(pid: number): number | undefined {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
    return children.map(Number).find((child) => lastOf(child, "NSpid") === 1);
  } catch {
    return undefined;
  }
}

/** Returns the process id inside the machine with that process 1. */
function innerPid(name: string, leader: number | undefined): number | undefined {
  try {
    const spaceOf = (pid: string): string => readlinkSync(`/proc/${pid}/ns/pid`);
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
    // It has exited by itself.
  }
}
