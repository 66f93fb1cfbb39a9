import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import { UpgradeRequest, type UpgradeStanding } from "../../../src/protocol/documents/release.ts";
import { freePort, holdfast, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const Shadow = z.object({ shadow: z.object({ reported: z.record(z.string(), z.unknown()) }) });
const OLD = "0.1.20261101-1000";
const NEW = "0.1.20261121-1830";

/** A service manager that records its calls, and reports a running unit while a file exists. */
const SERVICE_MANAGER = (dir: string): string => `#!/bin/sh
echo "$*" >> ${dir}/asked
[ "$1" = show ] || exit 0
if [ -e ${dir}/at-work ]; then echo ActiveState=activating; else echo ActiveState=inactive; fi
`;

test.skipIf(process.geteuid?.() !== 0)(
  "an upgrade can be requested remotely and at the console, and is reported to both",
  async () => {
    const dir = tempDir();
    const [releases, versions, units] = [join(dir, "releases"), join(dir, "versions"), join(dir, "units")];
    for (const path of [releases, versions, units]) mkdirSync(path);
    const systemctl = join(dir, "systemctl");
    writeFileSync(systemctl, SERVICE_MANAGER(units));
    chmodSync(systemctl, 0o755);
    writeFileSync(join(releases, "manifest.jws"), "a.b.c\n");
    const config = join(dir, "agent.json");
    writeFileSync(config, JSON.stringify({ unit: "holdfast-agent.service" }));
    const stand = (standing: UpgradeStanding): void =>
      writeFileSync(join(versions, "upgrade.json"), JSON.stringify(standing));

    const controller = await startController(dir, await freePort(), ["--releases", releases]);
    const within = ["unshare", "-m", "sh", "-c", `mount --bind ${systemctl} /usr/bin/systemctl && exec "$@"`, "sh"];
    const env = { ...process.env, HOLDFAST_VERSIONS: versions, HOLDFAST_LIB: join(dir, "lib") };
    const agent = await startAgent(join(dir, "node"), { within, env, more: ["--config", config] });
    const uid = await registerNode(controller, agent, "edge");
    const run = (body: unknown) => controller.call("POST", `/node/${uid}/trigger/node-upgrade?wait=1`, body);
    const requestPath = join(agent.runDir, "upgrade-request.json");
    const requested = (): UpgradeRequest => UpgradeRequest.parse(JSON.parse(readFileSync(requestPath, "utf8")));
    const from = `${controller.url}/releases/manifest.jws`;

    expect(await run({ skipUnattended: true })).toEqual({
      status: 200,
      body: { output: { status: "Upgrade in progress" } },
    });
    expect(requested()).toEqual({ from, by: "control-plane", skipUnattended: true, isForced: false });
    expect(readFileSync(join(units, "asked"), "utf8")).toContain("start --no-block -- holdfast-upgrade.service");
    expect(await (await fetch(from)).text()).toBe("a.b.c\n");
    expect(await run({ from: "/tmp/other" })).toMatchObject({ status: 422, body: [expect.stringMatching(/^from: /)] });

    writeFileSync(join(units, "at-work"), "");
    rmSync(requestPath);
    await waitFor("the trigger before is over", async () => {
      const { status, body } = await run({});
      if (status !== 200) return false;
      expect(body).toEqual({ output: { status: "Existing upgrade is already in progress" } });
      return true;
    });
    expect(existsSync(requestPath)).toBe(false);
    for (const event of ["node-reboot", "node-restart-service"]) {
      expect(await controller.call("POST", `/node/${uid}/trigger/${event}?wait=1`, {})).toMatchObject({
        status: 422,
        body: [expect.stringContaining("an upgrade is in progress")],
      });
    }

    const reported = async (): Promise<Record<string, unknown>> =>
      Shadow.parse((await controller.call("GET", `/node/${uid}`)).body).shadow.reported;
    stand({ state: "IN_PROGRESS", step: "fetching", from: OLD, to: NEW, begunAt: 1000 });
    await poke(agent.runDir);
    await waitFor("the shadow reports it", async () => (await reported())["node.upgrade.step"] === "fetching");
    const status = await holdfast(["status", "--state", agent.stateDir, "--run", agent.runDir]);
    expect(status.stdout).toContain(`upgrade from ${OLD} to ${NEW}: fetching`);

    const reason = { code: "crashed", message: "it ended three times" };
    stand({ state: "FAILED", from: OLD, to: NEW, begunAt: 1000, completedAt: 2000, starts: 3, reason });
    await poke(agent.runDir);
    await waitFor("the shadow reports it", async () => (await reported())["node.upgrade.state"] === "FAILED");
    expect(await reported()).toMatchObject({
      "node.upgrade.completed.tstamp": 2000,
      "node.upgrade.reason": "crashed: it ended three times",
      "node.upgrade.version": NEW,
      "package.version": expect.stringMatching(/^0\.1\.\d{8}-\d{4}$/) as string,
    });
    const why = await holdfast(["why", "--state", agent.stateDir, "--run", agent.runDir]);
    expect(why.stdout).toContain("upgrade-failed");
    const eventsNow = async (): Promise<string> =>
      JSON.stringify((await controller.call("GET", `/v2/event/${uid}`)).body);
    await waitFor("the event is there", async () => (await eventsNow()).includes('"subject":"Upgrade"'));

    const audits = JSON.stringify((await controller.call("GET", `/v2/audit/${uid}`)).body);
    expect(audits).toContain("invoked Node Upgrade");

    rmSync(join(units, "at-work"));
    const console_ = holdfast(["upgrade", "--force", "--state", agent.stateDir, "--run", agent.runDir], undefined, env);
    await waitFor("the console has asked", () => Promise.resolve(existsSync(requestPath)));
    expect(requested()).toEqual({ from, by: "operator", skipUnattended: false, isForced: true });
    stand({ state: "COMPLETED", from: OLD, to: NEW, begunAt: 3000, completedAt: 4000 });
    expect(await console_).toMatchObject({ code: 0, stdout: `Upgrade in progress\nupgraded from ${OLD} to ${NEW}\n` });
  },
);

/** Notifies as the upgrade's program does when a step starts. */
function poke(runDir: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const options = { socketPath: join(runDir, "admin.sock"), method: "POST", path: "/v1/wake", agent: false };
    request(options, (answer) => answer.resume().once("end", resolve))
      .once("error", reject)
      .end();
  });
}
