import { describe, expect, test } from "vitest";
import { checkBinds } from "../../../../../src/agent/sections/exec/policy.ts";
import { protectedPaths } from "../../../../../src/agent/sections/exec/protected-paths.ts";

const OWN = {
  stateDir: "/srv/own/state",
  runDir: "/srv/own/run",
  overlay: { stateDir: "/var/lib/holdfast-overlay", runDir: "/run/holdfast-overlay" },
  programs: ["/usr/lib/holdfast/bin/node", "/usr/lib/holdfast/holdfast.mjs"],
};
const ENGINE = { socketPath: "/srv/engine/e.sock", rootDirectory: "/srv/engine/root" };

const check = (source: string, allowBinds: readonly string[]) =>
  checkBinds(
    [{ kind: "bind", source }],
    { allowPrivileged: false, allowBinds, allowCapabilities: [] },
    protectedPaths(OWN, ENGINE),
    (path) => Promise.resolve(path),
  );

describe("the paths of a machine", () => {
  test.each([
    "/var/lib/holdfast/identity",
    "/var/lib/holdfast-overlay",
    "/var/lib/holdfast-versions/1.0.0",
    "/var/lib/holdfast-controller/controller.db",
    "/run/holdfast/admin.sock",
    "/run/holdfast-overlay",
    "/run/holdfast-controller",
    "/etc/holdfast/agent.json",
    "/etc/systemd/system/holdfast-agent.service",
    "/etc/systemd/system/holdfast-agent.service.d/x.conf",
    "/usr/lib/systemd/system",
    "/usr/lib/holdfast",
    "/usr/lib/holdfast/holdfast.mjs",
    "/usr/bin/holdfast",
    "/usr/bin",
    "/srv/own",
    "/srv/own/run",
    "/etc",
    "/var",
    "/run",
    "/",
  ])("never include %s", async (source) => {
    for (const allowBinds of [[], ["/"], [source]]) {
      const verdict = await check(source, allowBinds);
      expect(verdict).toMatchObject({ verdict: "refused" });
      expect(verdict).toMatchObject({ reason: expect.stringMatching(/belongs to Holdfast itself/) as unknown });
    }
  });

  test.each([
    ["/srv/engine/e.sock", /the socket of/],
    ["/srv/engine/root/overlay2", /a directory of the container engine/],
    ["/srv/engine", /the socket of/],
    ["/run/docker.sock", /the socket of/],
    ["/run/podman", /the socket of/],
    ["/run/containerd/containerd.sock", /the socket of/],
    ["/var/lib/docker/containers", /a directory of the container engine/],
    ["/run/dbus", /the socket of/],
    ["/run/dbus/system_bus_socket", /the socket of/],
    ["/run/systemd/private", /the socket of/],
    ["/usr/lib/locale", /has no entry for it/],
    ["/srv/data", /has no entry for it/],
    ["/srv/engineer", /has no entry for it/],
    ["/etc/localtime", /has no entry for it/],
    ["/run/udev", /has no entry for it/],
    ["/var/lib/holdfast2", /has no entry for it/],
  ])("include %s only with an entry", async (source, why) => {
    const refused = await check(source, []);
    expect(refused).toMatchObject({ verdict: "refused", reason: expect.stringMatching(why) as unknown });
    expect(refused).toMatchObject({ reason: expect.stringContaining("`containers.allowBinds`") as unknown });
    expect(await check(source, [source])).toEqual({ verdict: "allowed" });
  });

  test("are known before the engine reports its directories", () => {
    const { engineDirectories } = protectedPaths(OWN, { ...ENGINE, rootDirectory: "" });
    expect(engineDirectories).not.toContain("");
    expect(engineDirectories).toContain("/var/lib/docker");
  });
});
