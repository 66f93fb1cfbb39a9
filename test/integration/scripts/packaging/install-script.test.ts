import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { tempDir } from "../../../support/temp-dir.ts";

const SCRIPT = readFileSync(join(import.meta.dirname, "../../../../scripts/install.sh"), "utf8");
const POSTRM = readFileSync(join(import.meta.dirname, "../../../../scripts/packaging/maintainer/postrm"), "utf8");

/** Runs these lines instead of the end of install.sh, with `/etc` and `/usr/lib` below a directory. */
function run(root: string, end: string): { readonly status: number | null; readonly output: string } {
  const text = SCRIPT.replace(/^main "\$@"$/m, () => end)
    .replaceAll("/etc/holdfast", join(root, "etc"))
    .replaceAll("/usr/lib/holdfast", join(root, "lib"));
  const { status, stdout, stderr } = spawnSync("dash", ["-c", text], { encoding: "utf8" });
  return { status, output: stdout + stderr };
}

const mode = (path: string): string => (statSync(path).mode & 0o777).toString(8);

describe("install.sh", () => {
  it("keeps the readers of settings, and makes new ones readable by their owner", () => {
    const root = tempDir();
    const settings = join(root, "etc/agent.json");
    const set = 'dry_run= profile=agent is_profile_changed=; set_profile; echo "changed: $is_profile_changed"';
    expect(run(root, set)).toMatchObject({ status: 0, output: expect.stringContaining("changed: yes") as string });
    expect([mode(settings), readFileSync(settings, "utf8")]).toEqual(["600", '{"profile":"agent"}\n']);
    for (const bits of [0o600, 0o640]) {
      writeFileSync(settings, '{"proxy":"http://me:secret@192.0.2.1:3128"}');
      chmodSync(settings, bits);
      expect(run(root, set).status).toBe(0);
      expect(readFileSync(settings, "utf8")).toContain('"profile":"agent","proxy"');
      expect([mode(settings), mode(`${settings}.before`)]).toEqual([bits.toString(8), bits.toString(8)]);
    }
  });

  it("reports without doing it that a change of the profile restarts the agent", () => {
    const root = tempDir();
    mkdirSync(join(root, "etc"));
    const settings = join(root, "etc/agent.json");
    writeFileSync(settings, "{}");
    const set = 'dry_run=yes profile=agent is_profile_changed=; set_profile; echo "changed: $is_profile_changed"';
    expect(run(root, set)).toMatchObject({ status: 0, output: expect.stringContaining("changed: yes") as string });
    expect(readFileSync(settings, "utf8")).toBe("{}");
  });
});

describe("postrm", () => {
  it("removes no link that merely begins like ours", () => {
    const root = tempDir();
    const links = ["hf-mgmt", "hfc0", "hfc-modem", "hfc0123456789ab", "hfc0123456789abc", "eth0"];
    for (const name of links) mkdirSync(join(root, name));
    const [loop = ""] = /^ {2}h=[^]*?^ {2}done$/m.exec(POSTRM) ?? [];
    const text = loop.replaceAll("/sys/class/net", root).replace("ip link delete", "echo");
    const { stdout } = spawnSync("dash", ["-c", text.replaceAll(" 2>/dev/null", "")], { encoding: "utf8" });
    expect(stdout.trim().split("\n")).toEqual(["hf-mgmt", "hfc0123456789ab"]);
  });

  it.runIf(process.geteuid?.() === 0)(
    "finishes when a directory of ours is a mount, and leaves none of its contents",
    () => {
      const root = tempDir();
      const data = join(root, "var/lib/holdfast/data-store");
      mkdirSync(data, { recursive: true });
      mkdirSync(join(root, "var/lib/holdfast-versions"));
      const text = POSTRM.replaceAll(/(?<=[ (;])\/(?=etc\/|run\/|usr\/|var\/lib\/|sys\/)/g, `${root}/`)
        .replaceAll('"/var/lib', `"${root}/var/lib`)
        .replaceAll(/@[A-Z]+@/g, "");
      // No path of this machine may be used.
      expect(text).not.toMatch(/(?<!\w)\/(?:etc|run|usr|var|sys)\//);
      const script = `mount -t tmpfs none '${data}'; echo x >'${data}/file'; set -- purge\n${text}\nls '${data}'`;
      const { status, stdout, stderr } = spawnSync("unshare", ["--mount", "dash", "-c", script], { encoding: "utf8" });
      expect({ status, stdout }, stderr).toEqual({ status: 0, stdout: "" });
      expect(stderr).toContain("not all of it could be removed");
      expect(existsSync(join(root, "var/lib/holdfast-versions"))).toBe(false);
    },
  );
});
