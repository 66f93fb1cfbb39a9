import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { missingForMachines } from "../../support/upgrades/appliance-machine.ts";
import { BASE, GOOD, installedNode } from "../../support/installed-node.ts";
import { changedFiles, filesOf } from "../../support/machine/machine-files.ts";

const missing = missingForMachines();

describe.skipIf(missing !== undefined)(
  `a machine without the package${missing === undefined ? "" : ` (${missing})`}`,
  () => {
    const node = installedNode({ isInstalled: false });

    test("the guide's commands install, upgrade and remove", async () => {
      const { stage, releases, base, before } = node;
      const good = await releases.upgrade(BASE, GOOD, { isLight: true });
      const page = readFileSync(join(import.meta.dirname, "../../../docs/guide/install.md"), "utf8");
      const install = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].find(([, text]) =>
        text?.includes("release/install.sh --license"),
      )?.[1];
      await stage.machine.copyIn(base.dir, "/root/release");
      await stage.machine.copyIn(good.dir, "/root/newer");
      // Its owner has closed it to all others.
      await stage.machine.sh("chown -R 1234 /root/newer && chmod 0700 /root/newer && chmod 0600 /root/newer/*");
      await stage.bringLicense("by-the-readme");
      const { code, stdout, stderr } = await stage.machine.run(`cd /root && set -e\n${install ?? "false"}`, {
        limitMs: 250_000,
      });
      expect({ code, stderr: code === 0 ? "" : stdout + stderr }).toEqual({ code: 0, stderr: "" });
      for (const part of ["by-the-readme", base.version, good.version]) expect(stdout).toContain(part);
      expect(changedFiles(before, await filesOf(stage.machine))).toEqual([]);
    });
  },
);
