import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

/** Exit of a command with both outputs. */
export interface Ended {
  readonly status: number;
  readonly output: string;
}

/** A writable copy of this machine's files; removed when closed, in any way. */
export interface MachineCopy extends AsyncDisposable {
  /** Runs shell commands in it; `/given` there is the given folder. */
  run(command: string): Promise<Ended>;
  /** Copies the current state, which must not change any more. */
  again(): Promise<MachineCopy>;
  /** Limits the free space of it and its copies to this number of KiB; none without a number. */
  leaveFree(kib?: number): Promise<void>;
  /** Returns the paths that were added, removed or changed, except directories. */
  changed(): Promise<readonly string[]>;
}

// /run is empty, so systemd does not count as running. It ends with the pipe to its creator.
const SETUP = `set -e
mount -t tmpfs tmpfs "$0"
echo ready
exec cat`;

// Layers of the machine, or of the copies below, the latest first. Mounts below /dev are left out, since they may hold the copies.
const COPY = `set -e
mkdir "$0" "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "volatile,lowerdir=$2,upperdir=$0/upper,workdir=$0/work" "$0/root"
mount -t proc proc "$0/root/proc"
mount --bind /dev "$0/root/dev"
mount --bind /dev/pts "$0/root/dev/pts"
mount -t tmpfs tmpfs "$0/root/run"
mkdir -p "$0/root/given"
mount --bind "$1" "$0/root/given"`;

/** Makes a copy; needs root. */
export async function machineCopy(folder: string, given: string): Promise<MachineCopy> {
  const mounted = join(folder, "machine");
  mkdirSync(mounted);
  const holder = spawn("unshare", ["-m", "--propagation", "private", "sh", "-c", SETUP, mounted], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  await Promise.race([
    once(holder.stdout, "data"),
    once(holder, "exit").then(() => Promise.reject(new Error("no copy of this machine could be made: it needs root"))),
  ]);
  const within = (args: readonly string[]): Promise<Ended> =>
    new Promise((resolve) => {
      const command = ["-t", String(holder.pid), "-m", ...args];
      const child = execFile("nsenter", command, (error, stdout, stderr) => {
        resolve({ status: error === null ? 0 : (child.exitCode ?? -1), output: stdout + stderr });
      });
    });
  let made = 0;
  const copyOf = async (lower: readonly string[], end: (at: string) => Promise<void>): Promise<MachineCopy> => {
    made += 1;
    const at = join(mounted, String(made));
    const { status, output } = await within(["sh", "-c", COPY, at, given, lower.join(":")]);
    if (status !== 0) throw new Error(`no copy of this machine could be made: ${output}`);
    return {
      run: (command) => within(["env", "-u", "TMPDIR", "chroot", join(at, "root"), "sh", "-c", command]),
      again: () =>
        copyOf([join(at, "upper"), ...lower], async (other) => {
          await within(["sh", "-c", `umount -R -l "$0/root" && rm -rf "$0"`, other]);
        }),
      leaveFree: async (kib) => {
        const size = kib === undefined ? "50%" : `$(($(df -k --output=used "$0" | tail -n 1) + ${kib}))k`;
        const limited = await within(["sh", "-c", `mount -o "remount,size=${size}" "$0"`, mounted]);
        if (limited.status !== 0) throw new Error(`its room could not be limited: ${limited.output}`);
      },
      changed: async () => {
        const { output: paths } = await within(["find", join(at, "upper"), "!", "-type", "d", "-printf", "/%P\n"]);
        return paths.split("\n").filter((path) => path !== "");
      },
      [Symbol.asyncDispose]: () => end(at),
    };
  };
  return copyOf(["/"], async () => {
    const gone = once(holder, "exit");
    holder.stdin.end();
    if (holder.exitCode === null) await gone;
  });
}
