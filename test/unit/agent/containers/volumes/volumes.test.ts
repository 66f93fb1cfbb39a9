import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { VolumeManager } from "../../../../../src/agent/containers/volumes/volumes.ts";
import { HostError } from "../../../../../src/errors.ts";
import { hostDirectories } from "../../../../../src/host/files/directories.ts";
import type { EncryptedVolumes } from "../../../../../src/host/machine/encrypted-volume.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import type { VolumeSpec } from "../../../../../src/protocol/sections/exec/config.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { fakeEncryption, FakeEngineVolumes, FakeRecords } from "../../../../support/containers/fake-volumes.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const OWNER = "0f0e0d0c-0000-4000-8000-000000000001";
const HOUR_MS = 3_600_000;
const never = new AbortController().signal;

const volume = (name: string, change: Partial<VolumeSpec> = {}): VolumeSpec => ({
  path: "",
  name,
  encrypted: false,
  location: undefined,
  ...change,
});

function rig(options: { readonly encrypted?: EncryptedVolumes; readonly wall?: number } = {}) {
  const dataStore = join(realpathSync(tempDir()), "data-store");
  const engine = new FakeEngineVolumes();
  const records = new FakeRecords();
  const clock = new FakeClock(options.wall);
  const keys = new Map<string, string>();
  const start = () =>
    new VolumeManager({
      owner: OWNER,
      dataStore,
      engine,
      records,
      clock,
      encrypted: options.encrypted ?? fakeEncryption("this machine has no device mapper"),
      files: hostFiles(),
      directories: hostDirectories(),
      askKey: (name) => Promise.resolve(keys.get(name)),
    });
  const manager = start();
  const settle = (wanted: readonly VolumeSpec[], used: readonly string[] = [], by = manager) =>
    by.settle(wanted, new Set(used), never);
  const at = (...parts: string[]): string => join(dataStore, ...parts);
  const quarantine = (): readonly string[] =>
    existsSync(at("volumes/.quarantine")) ? readdirSync(at("volumes/.quarantine")) : [];
  return { dataStore, engine, records, clock, keys, manager, start, settle, at, quarantine };
}

describe("a volume", () => {
  test("is a directory of the data store that the engine binds under our label", async () => {
    const { settle, engine, at, manager } = rig();
    expect(await settle([volume("data")])).toEqual([
      { name: "data", state: "ready", reason: undefined, encrypted: false, path: at("volumes/data"), usedBy: [] },
    ]);
    expect(statSync(at("volumes/data")).mode & 0o777).toBe(0o755);
    expect(statSync(at()).mode & 0o777).toBe(0o700);
    expect([...engine.volumes.values()]).toEqual([
      {
        name: "holdfast-0f0e0d0c-data",
        driver: "local",
        driverOptions: { type: "none", o: "bind", device: at("volumes/data") },
        labels: { "io.holdfast.owner": OWNER },
        mountpoint: "",
      },
    ]);
    expect(manager.lookup("data")).toEqual({
      engineName: "holdfast-0f0e0d0c-data",
      isEncrypted: false,
      directory: at("volumes/data"),
    });
    expect(manager.lookup("other")).toEqual({ missing: "is not defined" });
  });

  test("requests nothing of the engine when nothing has changed, and again after it was forgotten", async () => {
    const { settle, engine, manager } = rig();
    await settle([volume("a"), volume("b")]);
    engine.calls.length = 0;
    await settle([volume("a"), volume("b")]);
    expect(engine.calls).toEqual([]);
    engine.volumes.delete("holdfast-0f0e0d0c-a");
    manager.forget();
    await settle([volume("a"), volume("b")]);
    expect(engine.calls).toEqual(["list", "create holdfast-0f0e0d0c-a", "list"]);
  });

  test("keeps its files over a new agent and a new path", async () => {
    const { settle, start, at, engine } = rig();
    await settle([volume("data", { location: "shared/maps" })]);
    writeFileSync(join(at("shared/maps"), "x"), "kept");
    engine.calls.length = 0;
    expect(await settle([volume("data", { location: "shared/maps" })], [], start())).toMatchObject([
      { state: "ready" },
    ]);
    expect(readFileSync(join(at("shared/maps"), "x"), "utf8")).toBe("kept");
    expect(engine.calls).toEqual(["list"]);
  });

  test("costs nothing if there is none", async () => {
    const { settle, engine, dataStore } = rig();
    expect(await settle([])).toEqual([]);
    expect(engine.calls).toEqual([]);
    expect(existsSync(dataStore)).toBe(false);
  });

  test("that has changed its path or kind stays as it was created, with a notice", async () => {
    const { settle, at, manager } = rig();
    await settle([volume("data")]);
    for (const change of [{ location: "elsewhere" }, { encrypted: true }]) {
      expect(await settle([volume("data", change)])).toMatchObject([
        {
          state: "ready",
          encrypted: false,
          path: at("volumes/data"),
          reason: expect.stringMatching(/cannot be changed/) as unknown,
        },
      ]);
      expect(manager.lookup("data")).toMatchObject({ isEncrypted: false });
    }
    expect(existsSync(at("elsewhere"))).toBe(false);
  });

  test("never leaves the data store, by name or by link", async () => {
    const { settle, at, manager } = rig();
    const outside = tempDir();
    mkdirSync(at("links"), { recursive: true });
    symlinkSync(outside, at("links/out"));
    writeFileSync(at("file"), "");
    const wanted = [
      volume("up", { location: "../../etc" }),
      volume("link", { location: "links/out/x" }),
      volume("direct", { location: "links/out" }),
      volume("blocked", { location: "file/x" }),
      volume("fine", { location: "links/in" }),
    ];
    const states = (await settle(wanted)).map(({ name, state }) => `${name} ${state}`);
    expect(states).toEqual(["up failed", "link failed", "direct failed", "blocked failed", "fine ready"]);
    expect(readdirSync(outside)).toEqual([]);
    expect(manager.lookup("link")).toEqual({ missing: expect.stringMatching(/is not a directory/) as unknown });
  });

  test("does not lie within another volume", async () => {
    const { settle } = rig();
    const wanted = [volume("a", { location: "x" }), volume("b", { location: "x/y" }), volume("c", { location: "xy" })];
    expect((await settle(wanted)).map(({ state }) => state)).toEqual(["ready", "failed", "ready"]);
  });

  test("does not adopt a foreign volume with the same name", async () => {
    const { settle, engine, manager } = rig();
    engine.volumes.set("holdfast-0f0e0d0c-data", {
      name: "holdfast-0f0e0d0c-data",
      driver: "local" as const,
      driverOptions: {},
      labels: {},
      mountpoint: "",
    });
    expect(await settle([volume("data"), volume("own")])).toMatchObject([
      { name: "data", state: "failed", reason: expect.stringMatching(/of somebody else/) as unknown },
      { name: "own", state: "ready" },
    ]);
    expect(manager.lookup("data")).toHaveProperty("missing");
    expect(engine.volumes.get("holdfast-0f0e0d0c-data")?.labels).toEqual({});
  });

  test("reports a stopped engine, is requested once, and can be mounted all the same", async () => {
    const { settle, engine, manager } = rig();
    engine.failures.set("list", new HostError("engine-unwell", "no engine"));
    expect(await settle([volume("a"), volume("b")])).toMatchObject([
      { state: "failed", reason: "no engine" },
      { state: "failed", reason: "no engine" },
    ]);
    expect(engine.calls).toEqual(["list"]);
    expect(manager.lookup("a")).toHaveProperty("engineName");
    engine.failures.clear();
    expect(await settle([volume("a"), volume("b")])).toMatchObject([{ state: "ready" }, { state: "ready" }]);
  });

  test("that the engine has lost is created again for its own directory before it is used", async () => {
    const { settle, engine, manager, at } = rig();
    await settle([volume("data")]);
    writeFileSync(at("volumes/data/x"), "kept");
    expect(await manager.restore("data", never)).toBe(false);
    engine.volumes.clear();
    expect(await manager.restore("data", never)).toBe(true);
    expect([...engine.volumes.values()]).toMatchObject([{ driverOptions: { device: at("volumes/data") } }]);
    expect(readFileSync(at("volumes/data/x"), "utf8")).toBe("kept");
    expect(await manager.restore("data", never)).toBe(false);
    expect(await manager.restore("undefined", never)).toBe(false);
    engine.volumes.clear();
    const stranger = {
      name: "holdfast-0f0e0d0c-data",
      driver: "local" as const,
      driverOptions: {},
      labels: {},
      mountpoint: "",
    };
    engine.volumes.set(stranger.name, stranger);
    await expect(manager.restore("data", never)).rejects.toThrow(/of somebody else/);
  });

  test("whose files belong to the engine is neither used nor removed, and says what to do", async () => {
    const { settle, engine, manager, at, quarantine } = rig();
    await settle([volume("data")]);
    const name = "holdfast-0f0e0d0c-data";
    const own = {
      name,
      driver: "local" as const,
      driverOptions: {},
      labels: { "io.holdfast.owner": OWNER },
      mountpoint: "/e/d",
    };
    engine.volumes.set(name, own);
    const reason = expect.stringMatching(/\/e\/d, instead of .*\/volumes\/data: copy .*docker volume rm/) as unknown;
    await expect(manager.restore("data", never)).rejects.toMatchObject({ code: "volume-in-engine", message: reason });
    expect(await settle([volume("data")])).toMatchObject([{ state: "failed", reason }]);
    expect(manager.lookup("data")).toEqual({ missing: reason });
    engine.calls.length = 0;
    expect(await settle([])).toMatchObject([{ name: "data", state: "failed", reason }]);
    expect(engine.calls).toEqual(["list"]);
    expect(existsSync(at("volumes/data"))).toBe(true);
    expect(quarantine()).toEqual([]);
    expect(engine.volumes.get(name)).toEqual(own);
  });

  test("is not removed on an outdated answer of the engine", async () => {
    const { settle, engine } = rig();
    await settle([volume("data")]);
    const name = "holdfast-0f0e0d0c-data";
    const own = {
      name,
      driver: "local" as const,
      driverOptions: {},
      labels: { "io.holdfast.owner": OWNER },
      mountpoint: "/e/d",
    };
    engine.volumes.set(name, own);
    expect(await settle([])).toMatchObject([{ state: "failed" }]);
    expect(engine.volumes.get(name)).toEqual(own);
  });

  test("moves with the data store", async () => {
    const { settle, start, engine, at } = rig();
    await settle([volume("data")]);
    const summary = engine.volumes.get("holdfast-0f0e0d0c-data");
    if (summary === undefined) throw new Error("no volume");
    engine.volumes.set(summary.name, { ...summary, driverOptions: { o: "bind", device: "/old/volumes/data" } });
    expect(await settle([volume("data")], [], start())).toMatchObject([{ state: "ready" }]);
    expect(engine.volumes.get(summary.name)?.driverOptions["device"]).toBe(at("volumes/data"));
  });
});

describe("a volume that is no longer wanted", () => {
  test("stays while in use, waits a day in quarantine, and is deleted", async () => {
    const { settle, engine, at, clock, quarantine, records, manager } = rig();
    await settle([volume("data")]);
    writeFileSync(at("volumes/data/x"), "1");
    expect(await settle([], ["data"])).toMatchObject([
      { state: "ready", reason: expect.stringMatching(/still in use/) as unknown },
    ]);
    expect(await settle([])).toMatchObject([{ name: "data", state: "quarantined" }]);
    expect(engine.volumes.size).toBe(0);
    expect(existsSync(at("volumes/data"))).toBe(false);
    expect(quarantine()).toHaveLength(1);
    expect(manager.nextDue).toBe(clock.now() + 24 * HOUR_MS);
    await clock.advance(24 * HOUR_MS - 1);
    expect(await settle([])).toMatchObject([{ state: "quarantined" }]);
    await clock.advance(1);
    expect(await settle([])).toEqual([]);
    expect(quarantine()).toEqual([]);
    expect(records.volumes.size).toBe(0);
    expect(manager.nextDue).toBeUndefined();
  });

  test("is kept longer on request", async () => {
    const { manager, settle, clock } = rig();
    await settle([volume("data")]);
    await manager.settle([], new Set(), never, { quarantineMs: 168 * HOUR_MS });
    expect(manager.nextDue).toBe(clock.now() + 168 * HOUR_MS);
  });

  test("returns with its files when it is wanted again unchanged", async () => {
    const { settle, at, quarantine } = rig();
    await settle([volume("data")]);
    writeFileSync(at("volumes/data/x"), "kept");
    await settle([]);
    expect(await settle([volume("data")])).toMatchObject([{ state: "ready" }]);
    expect(readFileSync(at("volumes/data/x"), "utf8")).toBe("kept");
    expect(quarantine()).toEqual([]);
  });

  test("does not return when it is wanted elsewhere", async () => {
    const { settle, at, quarantine, clock } = rig();
    await settle([volume("data")]);
    writeFileSync(at("volumes/data/x"), "old");
    await settle([]);
    const elsewhere = volume("data", { location: "new" });
    expect(await settle([elsewhere])).toMatchObject([{ state: "ready", path: at("new") }]);
    expect(readdirSync(at("new"))).toEqual([]);
    await clock.advance(25 * HOUR_MS);
    expect(await settle([elsewhere])).toMatchObject([{ state: "ready" }]);
    expect(quarantine()).toEqual([]);
  });

  test("stays in place while the engine cannot release it", async () => {
    const { settle, engine, at, quarantine } = rig();
    await settle([volume("data"), volume("other")]);
    const busy = new HostError("engine-refused", "volume is in use", { details: { status: 409 } });
    engine.failures.set("remove holdfast-0f0e0d0c-data", busy);
    expect(await settle([])).toMatchObject([
      { name: "data", state: "failed", reason: "cannot be removed: volume is in use" },
      { name: "other", state: "quarantined" },
    ]);
    expect(existsSync(at("volumes/data"))).toBe(true);
    expect(quarantine()).toHaveLength(1);
  });

  test("is found again after a crash at any step", async () => {
    const { settle, start, engine, at, quarantine, records, clock } = rig();
    await settle([volume("data")]);
    // The engine lost its volume before ours was notified.
    engine.volumes.clear();
    await settle([]);
    const record = records.volumes.get("data");
    if (record === undefined) throw new Error("no record");
    // It was moved, and not recorded yet.
    records.putVolume({ ...record, quarantinedAt: undefined });
    expect(await settle([], [], start())).toMatchObject([{ state: "quarantined" }]);
    expect(quarantine()).toHaveLength(1);
    await clock.advance(24 * HOUR_MS);
    expect(await settle([], [], start())).toEqual([]);
    expect(existsSync(at("volumes/data"))).toBe(false);
  });

  test("is not judged by a clock that was not set", async () => {
    const { settle, clock, quarantine } = rig({ wall: 1000 });
    await settle([volume("data")]);
    await settle([]);
    clock.setWall(Date.UTC(2026, 0, 1));
    expect(await settle([])).toMatchObject([{ state: "quarantined" }]);
    await clock.advance(23 * HOUR_MS);
    expect(await settle([])).toMatchObject([{ state: "quarantined" }]);
    await clock.advance(HOUR_MS);
    expect(await settle([])).toEqual([]);
    expect(quarantine()).toEqual([]);
  });

  test("of unknown origin is left alone", async () => {
    const { settle, records, at } = rig();
    await settle([volume("data")]);
    for (const detail of ["{", '{"encrypted":false,"parts":["..","etc"]}', '{"encrypted":false,"parts":[]}']) {
      records.putVolume({ name: "data", detail, createdAt: 0, quarantinedAt: undefined });
      expect(await settle([])).toMatchObject([
        { state: "failed", reason: expect.stringMatching(/left alone/) as unknown },
      ]);
    }
    expect(existsSync(at("volumes/data"))).toBe(true);
  });
});

describe("an encrypted volume", () => {
  const secret = volume("secret", { encrypted: true });

  test("is unsupported on a machine without encryption, with the reason, and creates no unencrypted one", async () => {
    const { settle, manager, engine, at } = rig();
    expect(await settle([secret, volume("plain")])).toMatchObject([
      { name: "secret", state: "unsupported", reason: "this machine has no device mapper", encrypted: true },
      { name: "plain", state: "ready" },
    ]);
    expect(manager.lookup("secret")).toEqual({ missing: "this machine has no device mapper" });
    expect([...engine.volumes.keys()]).toEqual(["holdfast-0f0e0d0c-plain"]);
    expect(existsSync(at("volumes/secret"))).toBe(false);
    await expect(manager.unlock("secret", never)).rejects.toMatchObject({ code: "not-found" });
  });

  test("waits for its key, opens with it, and is locked again", async () => {
    const encrypted = fakeEncryption();
    const { settle, manager, keys, at } = rig({ encrypted });
    expect(await settle([secret])).toMatchObject([{ state: "ready", path: at("volumes/.mounts/secret/content") }]);
    expect(manager.lookup("secret")).toMatchObject({ isEncrypted: true });
    await expect(manager.unlock("secret", never)).rejects.toMatchObject({ code: "volume-locked" });
    expect(await settle([secret])).toMatchObject([{ state: "missing", reason: "no key" }]);
    keys.set("secret", "k1");
    await manager.unlock("secret", never);
    expect(await settle([secret])).toMatchObject([{ state: "ready", reason: undefined }]);
    expect([...encrypted.opened]).toEqual(["holdfast-0f0e0d0c-secret"]);
    await manager.lock("secret", never, () => true);
    expect(encrypted.opened.size).toBe(1);
    await manager.lock("secret", never);
    expect(encrypted.opened.size).toBe(0);
    keys.set("secret", "k2");
    await expect(manager.unlock("secret", never)).rejects.toMatchObject({ code: "wrong-key" });
  });

  test("is locked before it goes to quarantine, and others do not wait for a key", async () => {
    const encrypted = fakeEncryption();
    const { settle, manager, keys, at, quarantine } = rig({ encrypted });
    await settle([secret]);
    keys.set("secret", "k1");
    const unlocking = manager.unlock("secret", never);
    await settle([secret]);
    await unlocking;
    mkdirSync(at("volumes/.encrypted"), { recursive: true });
    writeFileSync(at("volumes/.encrypted/secret.img"), "LUKS");
    expect(await settle([])).toMatchObject([{ state: "quarantined", encrypted: true }]);
    expect(encrypted.opened.size).toBe(0);
    expect(quarantine()).toHaveLength(1);
    await settle([secret]);
    expect(readFileSync(at("volumes/.encrypted/secret.img"), "utf8")).toBe("LUKS");
  });

  test("of others needs no key", async () => {
    const { settle, manager } = rig();
    await settle([volume("plain")]);
    await manager.unlock("plain", never);
    await manager.lock("plain", never);
  });
});

test("an aborted pass rejects with its reason", async () => {
  const { manager } = rig();
  const reason = new Error("enough");
  await expect(manager.settle([volume("a", { location: "../x" })], new Set(), AbortSignal.abort(reason))).rejects.toBe(
    reason,
  );
});
