import { open, unlink } from "node:fs/promises";
import { errnoOf, HostError, toError } from "../../errors.ts";
import type { Directories } from "../files/directories.ts";
import type { Exec } from "../process/exec.ts";
import type { Reader } from "../reader.ts";

/** Reports whether this machine supports encrypted volumes, and if not, why. */
export type EncryptionSupport =
  | { readonly isSupported: true }
  | { readonly isSupported: false; readonly reason: string };

/** An encrypted volume on disk. */
export interface EncryptedVolume {
  /** Device mapper name: at most 127 letters, digits and `-_.`. */
  readonly mapping: string;
  /** The file that holds the volume; its directory exists. */
  readonly image: string;
  /** An existing, empty directory. */
  readonly mountPoint: string;
  /** Size of the sparse file when it is created. */
  readonly sizeBytes: number;
}

/**
 * LUKS2 volumes in files through cryptsetup(8). The key is passed only through its standard input.
 * @throws {HostError} `wrong-key`, `encryption-failed`; errors of `Exec.run`.
 */
export interface EncryptedVolumes {
  support(signal: AbortSignal): Promise<EncryptionSupport>;
  isOpen(volume: EncryptedVolume): boolean;
  /** Opens and mounts a volume, creating it if necessary; can be repeated after a crash at any point. */
  open(volume: EncryptedVolume, key: string, signal: AbortSignal): Promise<void>;
  /** Unmounts and locks a volume, if it is open. */
  close(volume: EncryptedVolume, signal: AbortSignal): Promise<void>;
}

/** Directory in an open volume that containers get. It does not exist while the volume is locked. */
export const CONTENT = "content";

const QUICK = { deadlineMs: 15_000, maxOutputBytes: 65_536 };
/** Deriving the key and making a file system take long on a small machine. */
const SLOW = { deadlineMs: 180_000, maxOutputBytes: 65_536 };
/** Exit status of cryptsetup(8), RETURN CODES. */
const NO_PERMISSION = 2;
const KEY_MEMORY_KIB = "65536";
const BLOCK_DEVICES = "/sys/class/block";
const DEVICE_MAPPER = "/dev/mapper/control";

export function encryptedVolumes(tools: {
  readonly exec: Exec;
  /** Runs the tools that map and mount; `exec` by default. */
  readonly privileged?: Pick<Exec, "run">;
  readonly reader: Reader;
  readonly directories: Directories;
}): EncryptedVolumes {
  const { exec, privileged = exec, reader, directories } = tools;

  async function run(
    file: string,
    args: readonly string[],
    signal: AbortSignal,
    options: { readonly deadlineMs: number; readonly maxOutputBytes: number; readonly input?: string } = QUICK,
  ): Promise<void> {
    const { exitCode, stderr } = await privileged.run(file, args, { ...options, signal });
    if (exitCode === 0) return;
    if (file === "cryptsetup" && exitCode === NO_PERMISSION && options.input !== undefined) {
      throw new HostError("wrong-key", "the key does not open the volume");
    }
    throw new HostError(
      "encryption-failed",
      `${file} ${args[0] ?? ""}: ${stderr.trim().slice(0, 300) || `exit status ${exitCode}`}`,
    );
  }

  const device = (volume: EncryptedVolume): string => `/dev/mapper/${volume.mapping}`;
  /** Reads sysfs, because a systemd unit may have a private /dev. */
  const hasMapping = (name: string): boolean =>
    (reader.list(BLOCK_DEVICES) ?? []).some(
      (block) => block.startsWith("dm-") && reader.read(`${BLOCK_DEVICES}/${block}/dm/name`)?.trim() === name,
    );
  const isMapped = ({ mapping }: EncryptedVolume): boolean => hasMapping(mapping);
  const isMounted = ({ mountPoint }: EncryptedVolume): boolean =>
    (reader.read("/proc/self/mountinfo") ?? "").split("\n").some((line) => line.split(" ")[4] === octal(mountPoint));

  const unlockArgs = (image: string, mapping: string): readonly string[] => [
    "open",
    "--type",
    "luks2",
    "--batch-mode",
    "--key-file",
    "-",
    image,
    mapping,
  ];

  /** Creates the volume under another name until it is complete, so that a volume under its own name can always be opened. */
  async function make(volume: EncryptedVolume, key: string, signal: AbortSignal): Promise<void> {
    const partial = `${volume.image}.new`;
    // The prefix avoids clashes with other volumes, whose names may have any suffix.
    const mapping = `new.${volume.mapping}`;
    if (hasMapping(mapping)) await run("cryptsetup", ["close", mapping], signal);
    await sparseFile(partial, volume.sizeBytes);
    const format = [
      "luksFormat",
      "--type",
      "luks2",
      "--batch-mode",
      "--pbkdf-memory",
      KEY_MEMORY_KIB,
      "--key-file",
      "-",
      partial,
    ];
    await run("cryptsetup", format, signal, { ...SLOW, input: key });
    await run("cryptsetup", unlockArgs(partial, mapping), signal, { ...SLOW, input: key });
    try {
      await run("mkfs.ext4", ["-q", "-m", "0", `/dev/mapper/${mapping}`], signal, SLOW);
    } finally {
      // Runs after an abort too, because an open mapping would hold the file.
      await run("cryptsetup", ["close", mapping], AbortSignal.timeout(QUICK.deadlineMs));
    }
    await directories.move(partial, volume.image);
  }

  return {
    async support(signal) {
      const isThere = async (file: string, args: readonly string[], pattern?: RegExp): Promise<boolean> => {
        try {
          const { exitCode, stdout } = await privileged.run(file, args, { ...QUICK, signal });
          return exitCode === 0 && (pattern?.test(stdout) ?? true);
        } catch (error) {
          signal.throwIfAborted();
          if (error instanceof HostError) return false;
          throw error;
        }
      };
      const hasMapper =
        reader.fingerprint(DEVICE_MAPPER) !== undefined || (await isThere("test", ["-e", DEVICE_MAPPER]));
      if (!hasMapper) return no("this machine has no device mapper");
      for (const [tool, args] of [
        ["cryptsetup", ["--version"]],
        ["mkfs.ext4", ["-V"]],
      ] as const) {
        try {
          await exec.run(tool, args, { ...QUICK, signal });
        } catch (error) {
          if (error instanceof HostError && error.code === "tool-missing") return no(`${tool} is not installed`);
          throw error;
        }
      }
      // dmsetup lists only loaded targets; the kernel loads others on demand.
      const hasCrypt =
        (await isThere("dmsetup", ["targets"], /^crypt\s/m)) ||
        (await isThere("modprobe", ["--dry-run", "--quiet", "dm-crypt"]));
      return hasCrypt ? { isSupported: true } : no("this kernel has no dm-crypt");
    },
    isOpen: (volume) => isMapped(volume) && isMounted(volume),
    async open(volume, key, signal) {
      if (!isMapped(volume)) {
        if ((await directories.kind(volume.image)) === undefined) await make(volume, key, signal);
        await run("cryptsetup", unlockArgs(volume.image, volume.mapping), signal, { ...SLOW, input: key });
      }
      if (!isMounted(volume)) {
        await run("mount", ["-t", "ext4", "-o", "nodev", "--", device(volume), volume.mountPoint], signal);
      }
      await directories.makeWithin(volume.mountPoint, [CONTENT], 0o755);
    },
    async close(volume, signal) {
      if (isMounted(volume)) await run("umount", ["--", volume.mountPoint], signal);
      if (isMapped(volume)) await run("cryptsetup", ["close", volume.mapping], signal);
    },
  };
}

const no = (reason: string): EncryptionSupport => ({ isSupported: false, reason });

/** Escapes a path like mountinfo (proc(5)). */
const octal = (path: string): string =>
  path.replaceAll(/[\s\\]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`);

async function sparseFile(path: string, sizeBytes: number): Promise<void> {
  try {
    await unlink(path).catch((error: unknown) => {
      if (errnoOf(error) !== "ENOENT") throw error;
    });
    const file = await open(path, "wx", 0o600);
    try {
      await file.truncate(sizeBytes);
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw new HostError("encryption-failed", `cannot create ${path}: ${toError(cause).message}`, { cause });
  }
}
