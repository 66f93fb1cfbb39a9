import { isDeepStrictEqual } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { missingForMachines } from "../../support/upgrades/appliance-machine.ts";
import { AGENT, installedNode, OVERLAY } from "../../support/installed-node.ts";
import type { InstalledStage } from "../../support/upgrades/installed-stage.ts";
import { differences, machineState } from "../../support/network/machine-state.ts";
import { isDue, TESTS_ALL } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

/** More than systemd takes for too many by default, so that its limit would show. */
const KILLS = TESTS_ALL ? 20 : 6;

/** Requests the agent's status, once for each number of a range that follows, until one fails. */
const STATUS = "curl -s --fail-early --unix-socket /run/holdfast/agent.sock http://agent/v1/status";
/** Clients that the agent serves at the same time, without those that the test is itself. */
const CLIENTS = 12;

const missing = missingForMachines();

describe.skipIf(missing !== undefined)(
  `an installed node that is restarted, killed or without power${missing === undefined ? "" : ` (${missing})`}`,
  () => {
    const node = installedNode();
    let stage: InstalledStage;
    beforeAll(() => void ({ stage } = node));

    test("after a reboot it recovers by itself, and serves the same", async () => {
      const bootId = await stage.machine.bootId();
      await stage.machine.reboot();
      expect(await stage.machine.bootId()).not.toBe(bootId);
      await stage.untilOnline();
      const flow = await stage.flow();
      flow.end();
    });

    test(`an agent killed ${KILLS} times in a row recovers, and loses no flow and nothing of the network`, async () => {
      const flow = await stage.flow();
      const overlay = await stage.pidOf(OVERLAY);
      const network = machineState(stage.machine.within);
      // The pause before a start is not tested.
      await stage.machine.sh(
        `mkdir -p /run/systemd/system/${AGENT}.d && printf '[Service]\nRestartSec=50ms\n' > /run/systemd/system/${AGENT}.d/test.conf && systemctl daemon-reload`,
      );
      for (let time = 1; time <= KILLS; time += 1) {
        const pid = await waitFor("an agent", async () => (await stage.pidOf(AGENT)) || undefined);
        await stage.machine.sh(`kill -KILL ${pid}`);
        await waitFor("another agent", async () => ![0, pid].includes(await stage.pidOf(AGENT)));
      }
      await stage.untilOnline();
      await flow.continues();
      flow.end();
      expect(await stage.pidOf(OVERLAY)).toBe(overlay);
      expect(differences(network, machineState(stage.machine.within))).toEqual([]);
      await stage.machine.sh(`rm -r /run/systemd/system/${AGENT}.d && systemctl daemon-reload`);
    });

    test("the watchdog restarts an agent whose event loop hangs, without the loss of a flow", async () => {
      const flow = await stage.flow();
      const overlay = await stage.pidOf(OVERLAY);
      const network = machineState(stage.machine.within);
      await stage.machine.sh(
        `mkdir -p /run/systemd/system/${AGENT}.d && printf '[Service]\nWatchdogSec=5s\nTimeoutAbortSec=1s\n' > /run/systemd/system/${AGENT}.d/test.conf && systemctl daemon-reload && systemctl restart ${AGENT}`,
      );
      await stage.untilOnline();
      const pid = await stage.pidOf(AGENT);
      await stage.machine.sh(`kill -STOP ${pid}`);
      await stage.untilRestarted(pid);
      expect(await stage.machine.journal(AGENT)).toMatch(/Watchdog timeout/);
      await flow.continues();
      flow.end();
      expect(await stage.pidOf(OVERLAY)).toBe(overlay);
      expect(differences(network, machineState(stage.machine.within))).toEqual([]);
      // The next start has the usual limits.
      await stage.machine.sh(`rm -r /run/systemd/system/${AGENT}.d && systemctl daemon-reload`);
    });

    test.runIf(isDue("out of memory"))("an agent that runs out of memory recovers, and loses no flow", async () => {
      const flow = await stage.flow();
      const pid = await stage.pidOf(AGENT);
      await stage.machine.starve(pid);
      await waitFor("another agent", async () => {
        // Any action needs memory.
        await stage.machine.run(`timeout 2 ${STATUS}`);
        return ![0, pid].includes(await stage.pidOf(AGENT));
      });
      expect(await stage.machine.journal(AGENT)).toMatch(/code=killed, status=9\/KILL/);
      await stage.untilOnline();
      await flow.continues();
      flow.end();
    });

    test("a stop under load ends in order and in time, and the flows continue", async () => {
      const flow = await stage.flow();
      const asking = `timeout 60 ${STATUS}#[1-100000]`;
      const load = stage.machine.run(`for i in $(seq ${CLIENTS}); do ${asking} >/dev/null & done; wait`);
      await waitFor("all of them are served", async () => {
        const served = await stage.machine.run("ss -Hx state established src /run/holdfast/agent.sock | wc -l");
        return Number(served.stdout) >= CLIENTS;
      });
      await stage.machine.sh(`systemctl stop ${AGENT}`);
      expect(await stage.machine.property(AGENT, "Result")).toBe("success");
      await flow.continues();
      flow.end();
      await load;
      await stage.machine.sh(`systemctl start ${AGENT}`);
      await stage.untilOnline();
    });

    test("a power cut at any time leaves a machine that starts and recovers", async () => {
      const network = machineState(stage.machine.within);
      await stage.machine.sh(`systemctl restart --no-block ${AGENT}`);
      await stage.machine.powerCut();
      await stage.machine.boot();
      await stage.untilOnline();
      await waitFor("the network is as it was", () => {
        const { addresses, routes, nftables, rules } = machineState(stage.machine.within);
        return isDeepStrictEqual({ ...network, addresses, routes, nftables, rules }, network);
      });
      expect(await stage.machine.sh("systemctl --failed --no-legend")).toBe("");
    });
  },
);
