import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { checkBinds, checkPrivileges } from "../../../../../src/agent/sections/exec/policy.ts";
import { hostDirectories } from "../../../../../src/host/files/directories.ts";
import { containerSpec } from "../../../../support/containers/container-spec.ts";
import { dirOutsideDev } from "../../../../support/temp-dir.ts";

const STRICT = { allowPrivileged: false, allowBinds: [], allowCapabilities: [] };
const withCaps = (...add: string[]) => containerSpec({ capabilities: { add, drop: ["NET_RAW"] } });

describe("privileges", () => {
  test("of the ordinary kind need no permission", () => {
    expect(checkPrivileges(withCaps("NET_ADMIN", "NET_RAW", "SYS_NICE"), STRICT)).toBeUndefined();
  });

  test("beyond that are refused with rule and setting", () => {
    expect(checkPrivileges(containerSpec({ privileged: true }), STRICT)).toMatch(
      /^privileged: .*`containers.allowPrivileged`/,
    );
    expect(checkPrivileges(withCaps("NET_ADMIN", "SYS_ADMIN", "SYS_MODULE"), STRICT)).toMatch(
      /addCaps: SYS_ADMIN, SYS_MODULE forbidden.*`containers.allowCapabilities`/,
    );
    expect(checkPrivileges(withCaps("ALL"), STRICT)).toMatch(/ALL/);
  });

  test("are allowed one by one, and all of them with the whole machine", () => {
    const some = { ...STRICT, allowCapabilities: ["CAP_SYS_ADMIN"] };
    expect(checkPrivileges(withCaps("SYS_ADMIN"), some)).toBeUndefined();
    expect(checkPrivileges(withCaps("SYS_ADMIN", "SYS_MODULE"), some)).toMatch(/: SYS_MODULE forbidden/);
    expect(checkPrivileges(containerSpec({ privileged: true }), some)).toMatch(/^privileged/);
    const all = { ...STRICT, allowPrivileged: true };
    expect(
      checkPrivileges(containerSpec({ privileged: true, capabilities: { add: ["BPF"], drop: [] } }), all),
    ).toBeUndefined();
  });
});

/** A machine in a directory: an engine's socket, Holdfast's state, and a directory of the customer. */
function machine() {
  const root = realpathSync(dirOutsideDev());
  for (const path of ["run/engine", "var/lib/holdfast/identity", "var/lib/engine", "srv/data"]) {
    mkdirSync(join(root, path), { recursive: true });
  }
  writeFileSync(join(root, "run/engine/engine.sock"), "");
  symlinkSync(join(root, "run"), join(root, "var/run"));
  const at = (path: string): string => join(root, path);
  const paths = {
    own: [at("var/lib/holdfast"), at("run/holdfast")],
    sockets: [at("var/run/engine/engine.sock")],
    engineDirectories: [at("var/lib/engine")],
  };
  const check = (source: string, allowBinds: readonly string[] = []) =>
    checkBinds([{ kind: "bind", source }], { ...STRICT, allowBinds }, paths, (path) =>
      hostDirectories().realpath(path),
    );
  return { root, at, check };
}

describe("a bind", () => {
  test("needs an entry, and a volume needs none", async () => {
    const { at, check } = machine();
    expect(await check(at("srv/data"))).toEqual({
      verdict: "refused",
      reason:
        `mounts: bind of ${at("srv/data")} is forbidden by local policy: ` +
        "`containers.allowBinds` of the node's agent.json has no entry for it; one would allow it",
    });
    expect(await check(at("srv/data"), [at("srv/data")])).toEqual({ verdict: "allowed" });
    expect(await check(at("srv/data"), [at("srv")])).toEqual({ verdict: "allowed" });
    expect(await check(at("srv"), [at("srv/data")])).toMatchObject({ verdict: "refused" });
    expect(await check(at("srv/data"), [at("srv/dat")])).toMatchObject({ verdict: "refused" });
    const volume = { kind: "volume", source: "/", dest: "/x" } as const;
    const noPaths = { own: [], sockets: [], engineDirectories: [] };
    expect(await checkBinds([volume], STRICT, noPaths, () => Promise.reject(new Error("asked")))).toEqual({
      verdict: "allowed",
    });
  });

  test.each([
    ["the engine's socket", "run/engine/engine.sock", /socket of a container engine.*`containers.allowBinds`/],
    ["its directory", "run/engine", /socket of a container engine/],
    ["a directory above that", "run", /./],
    [
      "it by the name of a link",
      "var/run/engine/engine.sock",
      /engine\.sock \(which is .*\/run\/engine\/engine\.sock\)/,
    ],
    ["the engine's own files", "var/lib/engine", /directory of the container engine/],
    ["Holdfast's state", "var/lib/holdfast", /belongs to Holdfast itself, and no setting allows it/],
    ["its keys", "var/lib/holdfast/identity", /belongs to Holdfast itself/],
    ["a directory above it", "var/lib", /belongs to Holdfast itself/],
    ["what is not there yet of it", "var/lib/holdfast/later", /belongs to Holdfast itself/],
  ])("of %s is refused", async (_what, source, reason) => {
    const { at, check } = machine();
    expect(await check(at(source))).toEqual({ verdict: "refused", reason: expect.stringMatching(reason) as unknown });
  });

  test.each([
    "/etc/cron.d",
    "/etc/systemd/system",
    "/etc/shadow",
    "/root/.ssh",
    "/usr/bin",
    "/boot",
    "/tmp",
    "/home",
    "/etc/hostname",
    "/opt/none",
  ])("of %s is refused unless it has an entry", async (source) => {
    const nothing = { own: [], sockets: [], engineDirectories: [] };
    const realpath = (path: string) => hostDirectories().realpath(path);
    expect(await checkBinds([{ kind: "bind", source }], STRICT, nothing, realpath)).toEqual({
      verdict: "refused",
      reason: expect.stringMatching(/^mounts: bind of .*`containers.allowBinds` of the node's agent.json/) as unknown,
    });
  });

  test.each(["/", "/proc", "/proc/1/root", "/sys", "/sys/kernel", "/dev", "/dev/null", "/../proc/1"])(
    "of %s is refused",
    async (source) => {
      expect(await machine().check(source)).toMatchObject({ verdict: "refused" });
    },
  );

  test("is checked at the target of each symbolic link", async () => {
    const { at, check } = machine();
    symlinkSync(at("var/lib/holdfast/identity"), at("srv/data/harmless"));
    symlinkSync("/proc", at("srv/data/plain"));
    symlinkSync("/etc", at("srv/data/outside"));
    for (const source of ["harmless", "plain/1", "outside/hostname", "../../var/lib/holdfast", "../../../etc"]) {
      const verdict = await check(`${at("srv/data")}/${source}`, [at("srv")]);
      expect({ source, ...verdict }).toMatchObject({ verdict: "refused" });
    }
    // Only the kernel knows the target of another process's link.
    const detour = `/proc/1/root${at("srv/data")}`;
    expect(await check(detour, [at("srv")])).toMatchObject({ verdict: "refused" });
  });

  test("is allowed by the owner of the machine, except for paths of Holdfast", async () => {
    const { at, check } = machine();
    const socket = at("run/engine/engine.sock");
    expect(await check(socket, [at("var/run/engine/engine.sock")])).toEqual({ verdict: "allowed" });
    expect(await check("/dev/null", ["/dev"])).toEqual({ verdict: "allowed" });
    expect(await check("/dev/null", ["/de"])).toMatchObject({ verdict: "refused" });
    expect(await check(at("var/lib/holdfast"), ["/"])).toMatchObject({ verdict: "refused" });
    expect(await check("/", ["/"])).toMatchObject({ verdict: "refused" });
  });

  test("within another one of the container is refused, since the container can replace it by a link", async () => {
    const { at, root } = machine();
    const check = (sources: readonly string[], allowBinds: readonly string[] = [root]) =>
      checkBinds(
        sources.map((source) => ({ kind: "bind", source, dest: `/x${source}` })),
        { ...STRICT, allowBinds },
        { own: [], sockets: [], engineDirectories: [] },
        (path) => hostDirectories().realpath(path),
      );
    const both = [at("srv/data"), at("srv")];
    const refused = { verdict: "refused", reason: expect.stringMatching(/which a container can change/) as unknown };
    expect(await check(both)).toEqual(refused);
    expect(await check(both.toReversed())).toEqual(refused);
    expect(await check(both, [at("srv")])).toEqual(refused);
    expect(await check(both, [root, at("srv/data")])).toEqual({ verdict: "allowed" });
    expect(await check([at("srv/data"), at("srv/data")])).toEqual({ verdict: "allowed" });
    mkdirSync(join(root, "srv/data2"));
    expect(await check([at("srv/data"), at("srv/data2")])).toEqual({ verdict: "allowed" });
    // Also with an existing link, and by the name of a link.
    symlinkSync(at("var/lib/engine"), at("srv/data/link"));
    expect(await check([at("srv/data"), at("srv/data/link")])).toEqual(refused);
    symlinkSync(at("srv"), at("by-link"));
    expect(await check([at("by-link"), at("srv/data")])).toEqual(refused);
  });

  test("within one of another container needs an entry of its own, too", async () => {
    const { at, root } = machine();
    const check = (others: readonly string[], allowBinds: readonly string[]) =>
      checkBinds(
        [{ kind: "bind", source: at("srv/data") }],
        { ...STRICT, allowBinds },
        { own: [], sockets: [], engineDirectories: [] },
        (path) => hostDirectories().realpath(path),
        others,
      );
    const reason = expect.stringMatching(
      /it is in .*\/srv, which a container can change; .*`containers.allowBinds`/,
    ) as unknown;
    expect(await check([at("srv")], [root])).toEqual({ verdict: "refused", reason });
    expect(await check([at("srv")], [root, at("srv/data")])).toEqual({ verdict: "allowed" });
    expect(await check([at("srv/data"), at("srv/data/below")], [root])).toEqual({ verdict: "allowed" });
  });

  test("of a missing path waits for it, and a refused one is reported first", async () => {
    const { at, check } = machine();
    expect(await check(at("srv/later"))).toMatchObject({ verdict: "refused" });
    expect(await check(at("srv/later"), [at("srv")])).toEqual({
      verdict: "missing",
      reason: `mounts: bind source ${at("srv/later")} does not exist`,
    });
  });
});
