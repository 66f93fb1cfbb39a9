import { beforeAll, describe, expect, test } from "vitest";
import { missingForMachines } from "../../support/upgrades/appliance-machine.ts";
import { AGENT, BASE, installedNode } from "../../support/installed-node.ts";
import type { InstalledStage } from "../../support/upgrades/installed-stage.ts";
import { changedFiles, filesOf } from "../../support/machine/machine-files.ts";
import { differences, machineState } from "../../support/network/machine-state.ts";
import type { Releases } from "../../support/upgrades/releases.ts";
import { waitFor } from "../../support/wait-for.ts";

const missing = missingForMachines();

describe.skipIf(missing !== undefined)(
  `an installed node with a broken upgrade, and a newer package${missing === undefined ? "" : ` (${missing})`}`,
  () => {
    const node = installedNode();
    let stage: InstalledStage;
    let releases: Releases;
    beforeAll(() => void ({ stage, releases } = node));

    test("an upgrade to a version that does not run after a power cut is rolled back after three starts", async () => {
      const running = (await stage.status()).build;
      // It passes its own test, since only the agent is broken.
      const breaks = 'if (process.argv[2] === "agent") process.exit(3);';
      const change = (text: string): string => text.replace("\n", `\n${breaks}\n`);
      const broken = await releases.upgrade(BASE, "20260301-000000.bad", { change, isLight: true });
      releases.offer(broken, stage.releasesDir);
      const asked = await stage.askForUpgrade();
      await stage.untilUpgrading(asked, "fetching", "verifying", "unpacking", "testing");
      await stage.machine.powerCut();
      await stage.machine.boot();
      expect((await stage.untilOnline()).build).toBe(running);
      const flow = await stage.flow();
      const overlay = await stage.overlayPid();
      const standing = await stage.untilUpgraded(asked);
      expect(standing).toMatchObject({ state: "FAILED", to: broken.version });
      expect(standing.starts ?? 0).toBeLessThanOrEqual(3);
      await flow.continues();
      flow.end();
      expect((await stage.untilOnline()).build).toBe(running);
      expect(await stage.overlayPid()).toBe(overlay);
      expect(await stage.machine.sh("ls /var/lib/holdfast-versions")).toContain(`${broken.version}.failed`);
      await waitFor("the control plane knows", async () => (await stage.reported())["node.upgrade.state"] === "FAILED");
      // A failed upgrade is not retried by itself.
      expect((await stage.upgrade()).state).toBe("FAILED");
      expect((await stage.status()).build).toBe(running);
    }, 400_000);

    test("a newer package under traffic breaks no flow, and runs", async () => {
      const build = "20260401-000000.deb1";
      const newer = await releases.deb(BASE, build);
      const flow = await stage.flow();
      const overlay = await stage.overlayPid();
      const network = machineState(stage.machine.within);
      // A pending network change is not interrupted.
      await stage.tryNetwork();
      const pid = await stage.pidOf(AGENT);
      await stage.install(newer);
      expect(await stage.machine.property("holdfast-restart.service", "ActiveState")).toBe("active");
      expect(await stage.pidOf(AGENT)).toBe(pid);
      expect((await stage.status()).pendingChange).toBeDefined();
      await stage.machine.sh("holdfast network revert");
      await stage.untilRestarted(pid);
      await flow.continues();
      flow.end();
      expect((await stage.untilOnline()).build).toBe(build);
      expect(await stage.overlayPid()).toBe(overlay);
      expect(differences(network, machineState(stage.machine.within))).toEqual([]);
    });

    test("a purged package leaves a machine as it was", async () => {
      await stage.machine.sh("dpkg --purge holdfast");
      expect(changedFiles(node.before, await filesOf(stage.machine))).toEqual([]);
    });
  },
);
