import { beforeAll, describe, expect, test } from "vitest";
import { missingForMachines } from "../../support/upgrades/appliance-machine.ts";
import { AGENT, BASE, GOOD, installedNode, OVERLAY } from "../../support/installed-node.ts";
import type { InstalledStage } from "../../support/upgrades/installed-stage.ts";
import { changedFiles, filesOf } from "../../support/machine/machine-files.ts";
import { differences, machineState } from "../../support/network/machine-state.ts";
import type { Releases, Release } from "../../support/upgrades/releases.ts";
import { isDue } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

const missing = missingForMachines();

/** Verifies in seconds what takes minutes. */
const judgesSoon = (text: string): string =>
  [
    ["windowMs:6e5", "windowMs:3e4"],
    ["settleMs:15e3", "settleMs:5e3"],
    ["againMs:12e4", "againMs:15e3"],
  ].reduce((changed, [part = "", by = ""]) => replaced(changed, part, by), text);

function replaced(text: string, part: string, by: string): string {
  if (!text.includes(part)) throw new Error(`there is no ${part} in the bundle`);
  return text.replaceAll(part, by);
}

describe.skipIf(missing !== undefined)(
  `an installed node that is upgraded${missing === undefined ? "" : ` (${missing})`}`,
  () => {
    const node = installedNode();
    let stage: InstalledStage;
    let good: Release;
    let releases: Releases;
    beforeAll(async () => {
      ({ stage, releases } = node);
      // Every third day with a runtime of its own, which takes longer than the rest of the upgrade.
      good = await releases.upgrade(BASE, GOOD, {
        change: judgesSoon,
        isLight: !isDue("a runtime of its own"),
      });
    });

    test("an upgrade under traffic breaks no flow, and is reported to the control plane", async () => {
      const flow = await stage.flow();
      const network = machineState(stage.machine.within);
      releases.offer(good, stage.releasesDir);
      expect(await stage.upgrade()).toMatchObject({ state: "COMPLETED", to: good.version });
      await flow.continues();
      flow.end();
      const status = await stage.untilOnline();
      expect(status.build).toBe(GOOD);
      expect(differences(network, machineState(stage.machine.within))).toEqual([]);
      await waitFor("the control plane knows", async () => {
        const reported = await stage.reported();
        return reported["package.version"] === good.version && reported["node.upgrade.state"] === "COMPLETED";
      });
    });

    test("a connect that waits while an overlay is replaced is not reset", async () => {
      expect(await stage.machine.sh("cat /proc/sys/net/ipv4/tcp_migrate_req")).toBe("1\n");
      const former: unknown = JSON.parse(await stage.machine.sh("cat /var/lib/holdfast/reported/adjusted.json"));
      expect(former).toMatchObject({ body: { "net.ipv4.tcp_migrate_req": "0" } });
    });

    test("the agent uses the overlay that took over", async () => {
      const successor = `holdfast-overlay@${good.version}.service`;
      const units = (await stage.doctor()).filter(({ family }) => family === "units").map(({ name }) => name);
      expect(units).toContain(successor);
      expect(units).not.toContain(OVERLAY);
      expect(await stage.bundle()).toContain("logs/holdfast-overlay@.service.log");
    });

    test("an upgrade interrupted right after its trial is reported as ended", async () => {
      // As it is on disk while the overlay takes over: confirmed, and not completed.
      const path = "/var/lib/holdfast-versions/upgrade.json";
      const { completedAt: _, ...standing } = (await stage.standing()) ?? {};
      const cut = JSON.stringify({ ...standing, state: "IN_PROGRESS", step: "judging" });
      await stage.machine.sh(`cat > ${path}.new && mv ${path}.new ${path}`, { input: cut });
      await stage.machine.powerCut();
      await stage.machine.boot();
      await waitFor("the upgrade is over", async () => (await stage.standing())?.state === "COMPLETED");
      expect((await stage.untilOnline()).build).toBe(GOOD);
      // The overlay that served since the boot gives way a moment after the upgrade is over.
      const successor = await stage.pidOf(`holdfast-overlay@${good.version}.service`);
      await waitFor("the successor serves", async () => (await stage.overlayPid()) === successor);
    });

    test.runIf(isDue("an installed version without a session"))(
      "a version without a session is replaced by the old one, which has one, and no flow is lost",
      async () => {
        const proof = "holdfast-node-proof+jwt";
        const build = "20260215-000000.bad";
        const change = (text: string): string => replaced(text, proof, proof.replace("proof", "claim"));
        const bad = await releases.upgrade(BASE, build, { change, isLight: true });
        releases.offer(bad, stage.releasesDir);
        const flow = await stage.flow();
        const overlay = await stage.overlayPid();
        const asked = await stage.askForUpgrade();
        await stage.untilUpgrading(asked, "judging");
        await stage.untilUpgrading(asked, "comparing");
        expect((await stage.untilOnline()).build).toBe(GOOD);
        const standing = await stage.untilUpgraded(asked);
        expect(standing).toMatchObject({ state: "FAILED", to: bad.version, reason: { code: "no-session" }, starts: 1 });
        await flow.continues();
        flow.end();
        expect((await stage.untilOnline()).build).toBe(GOOD);
        expect(await stage.overlayPid()).toBe(overlay);
        const said = await stage.machine.sh("journalctl --boot --no-pager --unit=holdfast-upgrade --output=cat");
        expect(said).toContain(`${bad.version} on trial again: the old version had a session in its place`);
        expect(await stage.machine.sh("ls /var/lib/holdfast-versions")).not.toContain(".aside");
      },
    );

    test("a proven version whose program is truncated is given up when it crashes, and the package's takes its place", async () => {
      await stage.machine.sh("rm /var/lib/holdfast-versions/*.probation");
      const bundle = `/var/lib/holdfast-versions/${good.version}/holdfast.mjs`;
      await stage.machine.sh(`truncate --size=100000 ${bundle} && systemctl kill --signal=KILL holdfast-agent.service`);
      await waitFor("the package's version is online", async () => {
        const status = await stage.status().catch(() => undefined);
        return status?.build === BASE && status.session.state === "online";
      });
      const marked = await stage.machine.sh(`cat /var/lib/holdfast-versions/${good.version}.failed`);
      expect(marked).toBe("its files are damaged\n");
    });

    test.runIf(isDue("an installed version that crashes"))(
      "an upgrade to a version that does not run after a power cut is rolled back after three starts",
      async () => {
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
        await waitFor(
          "the control plane knows",
          async () => (await stage.reported())["node.upgrade.state"] === "FAILED",
        );
        // A failed upgrade is not retried by itself.
        expect((await stage.upgrade()).state).toBe("FAILED");
        expect((await stage.status()).build).toBe(running);
      },
      400_000,
    );

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
