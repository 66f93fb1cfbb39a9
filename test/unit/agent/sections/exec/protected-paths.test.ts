import { describe, expect, test } from "vitest";
import { checkBinds } from "../../../../../src/agent/sections/exec/policy.ts";
import { protectedPaths } from "../../../../../src/agent/sections/exec/protected-paths.ts";

const OWN = {
  stateDir: "/var/lib/holdfast",
  runDir: "/run/holdfast",
  overlay: { stateDir: "/var/lib/holdfast-overlay", runDir: "/run/holdfast-overlay" },
  programs: ["/usr/lib/holdfast/bin/node", "/usr/lib/holdfast/holdfast.mjs"],
};
const ENGINE = { socketPath: "/srv/engine/e.sock", rootDirectory: "/srv/engine/root" };

describe("the paths of a machine", () => {
  test.each([
    ["/var/lib/holdfast/identity", "refused"],
    ["/var/lib/holdfast-overlay", "refused"],
    ["/run/holdfast/admin.sock", "refused"],
    ["/run/holdfast-overlay", "refused"],
    ["/etc/holdfast/agent.json", "refused"],
    ["/etc", "refused"],
    ["/var", "refused"],
    ["/run", "refused"],
    ["/srv/engine/e.sock", "refused"],
    ["/srv/engine/root/overlay2", "refused"],
    ["/srv/engine", "refused"],
    ["/run/docker.sock", "refused"],
    ["/run/podman", "refused"],
    ["/run/containerd/containerd.sock", "refused"],
    ["/var/lib/docker/containers", "refused"],
    ["/run/dbus", "refused"],
    ["/run/dbus/system_bus_socket", "refused"],
    ["/run/systemd/private", "refused"],
    ["/usr/lib/holdfast", "refused"],
    ["/usr/lib/holdfast/holdfast.mjs", "refused"],
    ["/usr/lib/locale", "allowed"],
    ["/srv/data", "allowed"],
    ["/srv/engineer", "allowed"],
    ["/etc/localtime", "allowed"],
    ["/run/udev", "allowed"],
    ["/var/lib/holdfast2", "allowed"],
  ])("%s: %s", async (source, verdict) => {
    const policy = { allowPrivileged: false, allowBinds: [], allowCapabilities: [] };
    const mounts = [{ kind: "bind", source, dest: "/x" }] as const;
    const asWritten = (path: string) => Promise.resolve(path);
    expect(await checkBinds(mounts, policy, protectedPaths(OWN, ENGINE), asWritten)).toMatchObject({ verdict });
  });

  test("are known before the engine says where it keeps things", () => {
    const { engineDirectories } = protectedPaths(OWN, { ...ENGINE, rootDirectory: "" });
    expect(engineDirectories).not.toContain("");
    expect(engineDirectories).toContain("/var/lib/docker");
  });
});
