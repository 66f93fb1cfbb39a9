import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { hostDirectories } from "../../../../src/host/files/directories.ts";
import { encryptedVolumes } from "../../../../src/host/machine/encrypted-volume.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const signal = new AbortController().signal;
const KEY = "k3y-that-nobody-may-see";
const OK = { cryptsetup: "exit 0", "mkfs.ext4": "exit 0", dmsetup: "echo 'crypt  v1.24.0'", modprobe: "exit 1" };

function machine(
  files: Readonly<Record<string, string>> = { "/dev/mapper/control": "" },
  tools: Readonly<Record<string, string>> = {},
) {
  const fake = fakeTools({ ...OK, mount: "exit 0", umount: "exit 0", ...tools });
  const { root, reader } = machineRoot({ "/proc/self/mountinfo": "", ...files });
  const volumes = encryptedVolumes({ exec: fake.exec, reader, directories: hostDirectories() });
  const store = tempDir();
  mkdirSync(join(store, "mnt"));
  const volume = {
    mapping: "holdfast-1-x",
    image: join(store, "x.img"),
    mountPoint: join(store, "mnt"),
    sizeBytes: 64 * 1024 * 1024,
  };
  const put = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  const map = (name: string): void => put("/sys/class/block/dm-3/dm/name", `${name}\n`);
  return { volumes, volume, store, put, map, calls: (tool: string) => fake.calls(tool) };
}

describe("support for encryption", () => {
  test.each<[string, Readonly<Record<string, string>>, Readonly<Record<string, string>>, string | undefined]>([
    ["with all of it", { "/dev/mapper/control": "" }, {}, undefined],
    [
      "with a module to load",
      { "/dev/mapper/control": "" },
      { dmsetup: "echo linear v1", modprobe: "exit 0" },
      undefined,
    ],
    ["without a device mapper", {}, {}, "this machine has no device mapper"],
    [
      "without dm-crypt",
      { "/dev/mapper/control": "" },
      { dmsetup: "echo 'encrypt v1'" },
      "this kernel has no dm-crypt",
    ],
    ["whose dmsetup fails", { "/dev/mapper/control": "" }, { dmsetup: "exit 1" }, "this kernel has no dm-crypt"],
  ])("%s", async (_what, files, tools, reason) => {
    expect(await machine(files, tools).volumes.support(signal)).toEqual(
      reason === undefined ? { isSupported: true } : { isSupported: false, reason },
    );
  });
});

test("a program without the machine's devices asks those that have them", async () => {
  const fake = fakeTools({ ...OK, dmsetup: "exit 1" });
  const privileged = fakeTools({ ...OK, test: "exit 0" });
  const { reader } = machineRoot({});
  const tools = { exec: fake.exec, privileged: privileged.exec, reader, directories: hostDirectories() };
  expect(await encryptedVolumes(tools).support(signal)).toEqual({ isSupported: true });
  expect(privileged.calls("test")).toEqual(["-e /dev/mapper/control"]);
});

describe("an encrypted volume", () => {
  test("is complete before it has its name, opened and mounted; the key is on standard input only", async () => {
    const seen = join(tempDir(), "stdin");
    const { volumes, volume, store, calls } = machine(undefined, { cryptsetup: `cat >>'${seen}'; echo >>'${seen}'` });
    await volumes.open(volume, KEY, signal);
    const half = `${volume.image}.new`;
    expect(calls("cryptsetup")).toEqual([
      `luksFormat --type luks2 --batch-mode --pbkdf-memory 65536 --key-file - ${half}`,
      `open --type luks2 --batch-mode --key-file - ${half} new.holdfast-1-x`,
      "close new.holdfast-1-x",
      `open --type luks2 --batch-mode --key-file - ${volume.image} holdfast-1-x`,
    ]);
    expect(calls("mkfs.ext4")).toEqual(["-q -m 0 /dev/mapper/new.holdfast-1-x"]);
    expect(calls("mount")).toEqual([`-t ext4 -o nodev -- /dev/mapper/holdfast-1-x ${volume.mountPoint}`]);
    expect(readdirSync(store).sort()).toEqual(["mnt", "x.img"]);
    expect(statSync(volume.image)).toMatchObject({ size: volume.sizeBytes, blocks: 0 });
    expect(statSync(volume.image).mode & 0o777).toBe(0o600);
    expect(existsSync(join(volume.mountPoint, "content"))).toBe(true);
    expect(calls("cryptsetup").join("")).not.toContain(KEY);
  });

  test("opens an existing one, mounts an open one, and leaves a mounted one", async () => {
    const { volumes, volume, put, map, calls } = machine();
    writeFileSync(volume.image, "LUKS");
    expect(volumes.isOpen(volume)).toBe(false);
    await volumes.open(volume, KEY, signal);
    expect(calls("cryptsetup")).toHaveLength(1);
    map("holdfast-1-x");
    expect(volumes.isOpen(volume)).toBe(false);
    await volumes.open(volume, KEY, signal);
    expect(calls("cryptsetup")).toHaveLength(1);
    expect(calls("mount")).toHaveLength(2);
    put("/proc/self/mountinfo", `30 22 253:0 / ${volume.mountPoint} rw - ext4 /dev/mapper/holdfast-1-x rw\n`);
    expect(volumes.isOpen(volume)).toBe(true);
    await volumes.open(volume, KEY, signal);
    expect(calls("mount")).toHaveLength(2);
  });

  test("starts again when a crash has left a partial one", async () => {
    const { volumes, volume, map, calls } = machine();
    writeFileSync(`${volume.image}.new`, "half");
    map("new.holdfast-1-x");
    await volumes.open(volume, KEY, signal);
    expect(calls("cryptsetup")[0]).toBe("close new.holdfast-1-x");
    expect(statSync(volume.image).size).toBe(volume.sizeBytes);
  });

  test("leaves one alone that has the name of the partial one", async () => {
    const { volumes, volume, map, calls } = machine();
    map("holdfast-1-x.new");
    await volumes.open(volume, KEY, signal);
    expect(calls("cryptsetup").filter((call) => call.includes("holdfast-1-x.new"))).toEqual([]);
  });

  test("is unmounted before it is locked, and only as far as it is open", async () => {
    const { volumes, volume, put, map, calls } = machine();
    await volumes.close(volume, signal);
    expect([...calls("umount"), ...calls("cryptsetup")]).toEqual([]);
    map("holdfast-1-x");
    put("/proc/self/mountinfo", `30 22 253:0 / ${volume.mountPoint} rw - ext4 x rw\n`);
    await volumes.close(volume, signal);
    expect([...calls("umount"), ...calls("cryptsetup")]).toEqual([`-- ${volume.mountPoint}`, "close holdfast-1-x"]);
  });

  test("distinguishes a wrong key from another failure, and never prints the key", async () => {
    const wrong = machine(undefined, { cryptsetup: "exit 2" });
    writeFileSync(wrong.volume.image, "LUKS");
    await expect(wrong.volumes.open(wrong.volume, KEY, signal)).rejects.toMatchObject({ code: "wrong-key" });
    const broken = machine(undefined, { "mkfs.ext4": "echo 'no space' >&2; exit 1" });
    await expect(broken.volumes.open(broken.volume, KEY, signal)).rejects.toMatchObject({
      code: "encryption-failed",
      message: "mkfs.ext4 -q: no space",
    });
    expect(existsSync(broken.volume.image)).toBe(false);
    expect(broken.calls("cryptsetup").at(-1)).toBe("close new.holdfast-1-x");
  });
});
