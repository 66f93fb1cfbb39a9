import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { lacksForMachines, OUTSIDE_ADDRESS } from "../support/appliance-machine.ts";
import { InstalledStage } from "../support/installed-stage.ts";
import { differences, machineState } from "../support/machine-state.ts";
import { changedFiles, filesOf, type MachineFiles } from "../support/machine-files.ts";
import { Releases, type Release } from "../support/releases.ts";
import { waitFor } from "../support/wait-for.ts";

const AGENT = "holdfast-agent.service";
const BASE = "20260101-000000.ba5e";
const OVERLAY = "holdfast-overlay.service";
const METRICS = "127.0.0.1:9464";
/** Nobody, who may read what the agent says of itself. */
const MEMBER = "setpriv --reuid=65534 --regid=65534 --groups=holdfast --";

/** Judges in seconds what takes ten minutes and two. */
const judgesSoon = (text: string): string =>
  replaced(replaced(text, "windowMs:6e5", "windowMs:15e3"), "againMs:12e4", "againMs:5e3");

function replaced(text: string, part: string, by: string): string {
  if (!text.includes(part)) throw new Error(`there is no ${part} in the bundle`);
  return text.replaceAll(part, by);
}

const missing = lacksForMachines();

describe.skipIf(missing !== undefined)(`an installed node${missing === undefined ? "" : ` (${missing})`}`, () => {
  const dir = mkdtempSync(join(tmpdir(), "hf-releases-"));
  let stage: InstalledStage;
  let base: Release;
  let good: Release;
  let before: MachineFiles;
  const releases = new Releases(dir);

  beforeAll(async () => {
    [stage, base] = await Promise.all([InstalledStage.make(), releases.package(BASE)]);
    good = await releases.upgrade(BASE, "20260201-000000.600d", judgesSoon);
    before = await filesOf(stage.machine);
    await stage.install(base);
    await stage.setUp({ metrics: { listen: METRICS } });
    await stage.setNetwork();
  }, 600_000);
  afterAll(async () => {
    rmSync(dir, { recursive: true, force: true });
    await stage.remove();
  });

  /** Waits until the agent is another process than before, and has a session. */
  async function untilBack(before: number): Promise<void> {
    await waitFor(
      "the agent has been started again",
      async () => ![0, before].includes(await stage.pidOf(AGENT)),
      90_000,
    );
    await stage.untilOnline();
  }

  test("it runs without a word of complaint from systemd", async () => {
    expect(await stage.machine.sh("systemctl --failed --no-legend")).toBe("");
    expect((await stage.status()).session.state).toBe("online");
    expect(await stage.machine.property(AGENT, "NRestarts")).toBe("0");
  });

  test("what a file set up at first boot is in force, and its license is gone", async () => {
    const file = await stage.machine.sh("cat /root/setup.json");
    expect(Object.keys(JSON.parse(file) as object)).toEqual(["settings"]);
    expect(await stage.machine.sh("holdfast setup --file /root/setup.json --once")).toContain("nothing to do");
    const metrics = await stage.machine.sh(`curl -sf http://${METRICS}/metrics`);
    expect(metrics).toContain('holdfast_session_state{state="online"} 1');
    expect(metrics).toContain('holdfast_section_state{section="network",state="converged"} 1');
  });

  test("its operator sees it as it is", async () => {
    const { machine } = stage;
    const seen = new Map((await stage.doctor()).map(({ family, name, code }) => [`${family} ${name}`, code]));
    for (const check of ["units holdfast-agent.service", `units ${OVERLAY}`, "agent session", "overlay connectors"])
      expect([check, seen.get(check)]).toEqual([check, "ok"]);
    for (const check of ["firewall table", "firewall marks", "upgrade release-keys", "configuration sections"])
      expect([check, seen.get(check)]).toEqual([check, "ok"]);
    expect(seen.get("upgrade standing")).toBe("none");
    expect(seen.get("overlay gateways")).toBe("none");
    expect(seen.get("time sync")).toBe("sync-missing");
    // A member of its group reads, and changes nothing.
    expect(await machine.sh(`${MEMBER} holdfast status`)).toMatch(/^session +online/m);
    const refused = await machine.run(`${MEMBER} holdfast upgrade --check; ${MEMBER} touch /run/holdfast/x`);
    expect(refused.stderr).toMatch(/only root may do this[^]*Permission denied/);
    // A reload looks again at once, and is no restart.
    const pid = await stage.pidOf(AGENT);
    await machine.sh(`systemctl reload ${AGENT}`);
    expect(await stage.pidOf(AGENT)).toBe(pid);
    expect((await stage.status()).session.state).toBe("online");
    expect(await machine.sh("journalctl -q --no-pager -o cat HOLDFAST_PROGRAM=agent")).toContain("agent started");
    expect(await machine.sh("journalctl -q --no-pager -o cat HOLDFAST_PROGRAM=overlay")).not.toBe("");
    // What the agent has no right for runs as a unit of its own.
    expect(await machine.sh("holdfast capture --count 2 eth0", { limitMs: 60_000 })).toMatch(/ IP 203\.0\.113\.\d+/);
    const asked = `holdfast trigger tg-arping '{"iface":"eth0","host":"${OUTSIDE_ADDRESS}"}'`;
    expect(await machine.sh(asked, { limitMs: 60_000 })).toMatch(/bytes from .*203\.0\.113\.1/);
    const hops = `holdfast trigger tg-traceroute '{"host":"${OUTSIDE_ADDRESS}"}'`;
    expect(await machine.sh(hops)).toMatch(new RegExp(`^ 1 +${OUTSIDE_ADDRESS} `, "m"));
  });

  test("name servers are set by a unit that does nothing else, since the agent writes nothing below /etc", async () => {
    const { machine } = stage;
    const inAgent = `nsenter -t ${await stage.pidOf(AGENT)} -m`;
    const tried = await machine.run(`${inAgent} sh -c 'for at in /etc /etc/holdfast /usr /root; do touch $at/x; done'`);
    expect(tried.stderr.match(/Read-only file system/g)).toHaveLength(4);
    const resolver = (): Promise<string> => machine.sh("stat -c %a,%U,%G /etc/resolv.conf*; cat /etc/resolv.conf");
    const before = await resolver();
    await stage.setNetwork({ dns: [OUTSIDE_ADDRESS] });
    const set = await waitFor("the name server is set", async () => {
      const found = await resolver();
      return found.includes(`\nnameserver ${OUTSIDE_ADDRESS}\n`) && found;
    });
    expect(set.split("\n").slice(0, 2)).toEqual([
      before.split("\n")[0],
      expect.stringMatching(/^# Written by holdfast/),
    ]);
    await stage.setNetwork();
    await waitFor("the file is as it was", async () => (await resolver()) === before);
  });

  test("directories and sockets that somebody removes below /run are there again, and no flow is lost", async () => {
    const { machine } = stage;
    const flow = await stage.flow();
    const overlay = await stage.pidOf(OVERLAY);
    const agent = await stage.pidOf(AGENT);
    // In a directory of somebody else's nothing is served.
    await machine.sh("rm -r /run/holdfast-overlay /run/holdfast && install -d -o nobody /run/holdfast");
    await waitFor("the overlay's is there again", async () => {
      const found = await machine.run("test -S /run/holdfast-overlay/overlay.sock");
      return found.code === 0;
    });
    const refused = "/run/holdfast belongs to another user";
    await waitFor("the log says so", async () => (await machine.journal(AGENT)).includes(refused));
    expect([await stage.pidOf(AGENT), await machine.sh("ls /run/holdfast")]).toEqual([agent, ""]);
    // As it is where /run is no mount of its own.
    await machine.sh(`nsenter -t ${agent} -m mount -o remount,bind,ro /run`);
    await machine.sh("rm -r /run/holdfast /run/holdfast-overlay");
    await untilBack(agent);
    await waitFor("the agent has the overlay", async () => {
      const seen = (await stage.doctor()).find(({ family, name }) => family === "overlay" && name === "connectors");
      return seen?.code === "ok" && (await stage.overlayPid()) === overlay;
    });
    await flow.goesOn();
    flow.end();
    expect(await machine.sh("stat -c '%a %U:%G' /run/holdfast /run/holdfast-overlay")).toBe(
      "750 root:holdfast\n750 holdfast-overlay:holdfast-overlay\n",
    );
  });

  test("updates of the system may do what packages do", async () => {
    const script = `set -e
useradd --system --home-dir /var/lib/hf-made --create-home hf-made && chown hf-made:hf-made /var/lib/hf-made
install -m 4755 /bin/true /var/lib/hf-made/own && mknod /var/lib/hf-made/node c 1 3
mount -t tmpfs none /mnt && umount /mnt && chroot / true && systemctl daemon-reload
runuser -u hf-made -- touch /var/lib/hf-made/file && echo 'package is set up'
userdel --remove hf-made 2>/dev/null`;
    const build = `set -e
mkdir -p /tmp/made/DEBIAN && cd /tmp/made
printf 'Package: hf-made\\nVersion: 1\\nArchitecture: all\\nMaintainer: test\\nDescription: test\\n' > DEBIAN/control
cat > DEBIAN/postinst && chmod 755 DEBIAN/postinst && dpkg-deb --build . /root/made.deb
printf '#!/bin/sh\\nexec dpkg --install /root/made.deb\\n' > /usr/bin/unattended-upgrade && chmod 755 /usr/bin/unattended-upgrade`;
    await stage.machine.sh(build, { input: `#!/bin/sh\n${script}\n` });
    await stage.machine.sh("systemctl start holdfast-os-update.service");
    expect(await stage.machine.journal("holdfast-os-update.service")).toContain("package is set up");
    await stage.machine.sh("dpkg --purge hf-made && rm -r /usr/bin/unattended-upgrade /root/made.deb /tmp/made");
  });

  test("an image is looked into by somebody who may read it and nothing else", async () => {
    // The machine has no qemu-img: what stands for it tells who it is and what it may.
    const tool = `#!/bin/sh
[ "$(id -u):$(id -G | wc -w)" = 65534:1 ] && ! cat /var/lib/holdfast/reported/known-time.json >/dev/null 2>&1 &&
  [ "$(head -c 3 "$5")" = QFI ] && echo '{"format": "qcow2", "virtual-size": 4711}'
`;
    await stage.machine.sh("cat > /usr/bin/qemu-img && chmod 755 /usr/bin/qemu-img", { input: tool });
    const node = `/v2/node/${stage.uid}`;
    await stage.call("POST", `${node}/data-store/mkdir`, { filename: "images/made" });
    const path = "/var/lib/holdfast/data-store/images/made/one";
    await stage.machine.sh(`umask 077; printf 'QFI\\373\\0\\0\\0\\3' > ${path} && truncate -s 4096 ${path}`);
    const image = { id: crypto.randomUUID(), displayName: "one", location: "images/made/one", os: "linux" };
    const told = await stage.call("POST", `${node}/kvm/image`, image);
    expect(told).toMatchObject({ present: true, bytes: 4096, format: "qcow2", virtualBytes: 4711 });
    expect(await stage.machine.sh(`stat -c %a,%u,%g ${path}`)).toBe("600,0,0\n");
    await stage.call("DELETE", `${node}/kvm/image/${image.id}?deleteFile=true`);
    await stage.machine.sh("rm /usr/bin/qemu-img");
  });

  test.each([
    { made: "here", bundle: () => stage.bundle() },
    { made: "for the control plane, within the agent's own confinement", bundle: () => stage.bundleFromAfar() },
  ])("a bundle made $made has the journal of its units, and none of its secrets", async ({ bundle }) => {
    const files = await bundle();
    expect(files).toMatch(/logs\/holdfast-agent\.service\.log/);
    expect(files).toMatch(/"msg":"agent started"/);
    const keys = JSON.parse(await stage.machine.sh("cat /var/lib/holdfast/identity/keys.json")) as unknown;
    const secrets = [...JSON.stringify(keys).matchAll(/"d":"([^"]{20,})"/g)].map(([, secret]) => secret ?? "");
    expect(secrets).not.toEqual([]);
    for (const secret of secrets) expect(files).not.toContain(secret);
  });

  test("after a reboot it comes back by itself, and serves what it served", async () => {
    const bootId = await stage.machine.bootId();
    await stage.machine.reboot();
    expect(await stage.machine.bootId()).not.toBe(bootId);
    await stage.untilOnline();
    const flow = await stage.flow();
    flow.end();
  });

  test("an agent killed twenty times in a row comes back, and loses no flow and nothing of the network", async () => {
    const flow = await stage.flow();
    const overlay = await stage.pidOf(OVERLAY);
    const network = machineState(stage.machine.within);
    // The pause before a start is not what is looked at.
    await stage.machine.sh(
      `mkdir -p /run/systemd/system/${AGENT}.d && printf '[Service]\nRestartSec=50ms\n' > /run/systemd/system/${AGENT}.d/test.conf && systemctl daemon-reload`,
    );
    for (let time = 1; time <= 20; time += 1) {
      const pid = await waitFor("an agent", async () => (await stage.pidOf(AGENT)) || undefined);
      await stage.machine.sh(`kill -KILL ${pid}`);
      await waitFor("another agent", async () => ![0, pid].includes(await stage.pidOf(AGENT)), 90_000);
    }
    await stage.untilOnline();
    await flow.goesOn();
    flow.end();
    expect(await stage.pidOf(OVERLAY)).toBe(overlay);
    expect(differences(network, machineState(stage.machine.within))).toEqual([]);
    await stage.machine.sh(`rm -r /run/systemd/system/${AGENT}.d && systemctl daemon-reload`);
  });

  test("an agent whose loop stands still is restarted by the watchdog, and loses no flow", async () => {
    const flow = await stage.flow();
    const overlay = await stage.pidOf(OVERLAY);
    const network = machineState(stage.machine.within);
    await stage.machine.sh(
      `mkdir -p /run/systemd/system/${AGENT}.d && printf '[Service]\nWatchdogSec=5s\nTimeoutAbortSec=1s\n' > /run/systemd/system/${AGENT}.d/test.conf && systemctl daemon-reload && systemctl restart ${AGENT}`,
    );
    await stage.untilOnline();
    const pid = await stage.pidOf(AGENT);
    await stage.machine.sh(`kill -STOP ${pid}`);
    await untilBack(pid);
    expect(await stage.machine.journal(AGENT)).toMatch(/Watchdog timeout/);
    await flow.goesOn();
    flow.end();
    expect(await stage.pidOf(OVERLAY)).toBe(overlay);
    expect(differences(network, machineState(stage.machine.within))).toEqual([]);
    await stage.machine.sh(
      `rm -r /run/systemd/system/${AGENT}.d && systemctl daemon-reload && systemctl restart ${AGENT}`,
    );
    await stage.untilOnline();
  });

  test("an agent that runs out of memory comes back, and loses no flow", async () => {
    const flow = await stage.flow();
    const pid = await stage.pidOf(AGENT);
    await stage.machine.starve(pid);
    await waitFor("another agent", async () => {
      // Whatever it does needs memory.
      await stage.machine.run("timeout 2 holdfast status");
      return ![0, pid].includes(await stage.pidOf(AGENT));
    });
    expect(await stage.machine.journal(AGENT)).toMatch(/code=killed, status=9\/KILL/);
    await stage.untilOnline();
    await flow.goesOn();
    flow.end();
  });

  test("a stop under load ends in order and in time, and the flows go on", async () => {
    const flow = await stage.flow();
    const load = stage.machine.run("for i in $(seq 40); do timeout 5 holdfast status --json & done; wait");
    await stage.machine.sh(`systemctl stop ${AGENT}`);
    expect(await stage.machine.property(AGENT, "Result")).toBe("success");
    await flow.goesOn();
    flow.end();
    await load;
    await stage.machine.sh(`systemctl start ${AGENT}`);
    await stage.untilOnline();
  });

  test("a power cut at any time leaves a machine that starts and comes back", async () => {
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

  test("an upgrade under traffic breaks no flow, and is told to the control plane", async () => {
    const flow = await stage.flow();
    const network = machineState(stage.machine.within);
    releases.offer(good, stage.releasesDir);
    expect(await stage.upgrade()).toMatchObject({ state: "COMPLETED", to: good.version });
    await flow.goesOn();
    flow.end();
    const status = await stage.untilOnline();
    expect(status.build).toBe("20260201-000000.600d");
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

  test("the overlay that took over is the one that is looked at", async () => {
    const successor = `holdfast-overlay@${good.version}.service`;
    const units = (await stage.doctor()).filter(({ family }) => family === "units").map(({ name }) => name);
    expect(units).toContain(successor);
    expect(units).not.toContain(OVERLAY);
    expect(await stage.bundle()).toContain("logs/holdfast-overlay@.service.log");
  });

  test("an upgrade that was cut off right after its trial is told to be over", async () => {
    // As it lies on disk while the overlay takes over: proven, and not completed.
    const path = "/var/lib/holdfast-versions/upgrade.json";
    const { completedAt: _, ...standing } = (await stage.standing()) ?? {};
    const cut = JSON.stringify({ ...standing, state: "IN_PROGRESS", step: "judging" });
    await stage.machine.sh(`cat > ${path}.new && mv ${path}.new ${path}`, { input: cut });
    await stage.machine.powerCut();
    await stage.machine.boot();
    await waitFor("the upgrade is over", async () => (await stage.standing())?.state === "COMPLETED");
    expect((await stage.untilOnline()).build).toBe("20260201-000000.600d");
  });

  test("a version without a session makes way for the old one, which has one in its place, and no flow is lost", async () => {
    const proof = "holdfast-node-proof+jwt";
    const build = "20260215-000000.bad";
    const bad = await releases.upgrade(BASE, build, (text) => replaced(text, proof, proof.replace("proof", "claim")));
    releases.offer(bad, stage.releasesDir);
    const flow = await stage.flow();
    const overlay = await stage.overlayPid();
    const asked = await stage.askForUpgrade();
    await stage.untilUpgrading(asked, "judging");
    await stage.untilUpgrading(asked, "comparing");
    expect((await stage.untilOnline()).build).toBe("20260201-000000.600d");
    const standing = await stage.untilUpgraded(asked);
    expect(standing).toMatchObject({ state: "FAILED", to: bad.version, reason: { code: "no-session" }, starts: 1 });
    await flow.goesOn();
    flow.end();
    expect((await stage.untilOnline()).build).toBe("20260201-000000.600d");
    expect(await stage.overlayPid()).toBe(overlay);
    const said = await stage.machine.sh("journalctl --boot --no-pager --unit=holdfast-upgrade --output=cat");
    expect(said).toContain(`${bad.version} on trial again: the old version had a session in its place`);
    expect(await stage.machine.sh("ls /var/lib/holdfast-versions")).not.toContain(".aside");
  });

  test("of an upgrade that goes on after a power cut and does not run, the way back is taken after three starts", async () => {
    const running = (await stage.status()).build;
    // It passes its own test, since only the agent is broken.
    const breaks = 'if (process.argv[2] === "agent") process.exit(3);';
    const broken = await releases.upgrade(BASE, "20260301-000000.bad", (text) => text.replace("\n", `\n${breaks}\n`));
    releases.offer(broken, stage.releasesDir);
    const asked = await stage.askForUpgrade();
    await stage.untilUpgrading(asked, "fetching", "verifying", "unpacking");
    await stage.machine.powerCut();
    await stage.machine.boot();
    expect((await stage.untilOnline()).build).toBe(running);
    const flow = await stage.flow();
    const overlay = await stage.overlayPid();
    const standing = await stage.untilUpgraded(asked);
    expect(standing).toMatchObject({ state: "FAILED", to: broken.version });
    expect(standing.starts ?? 0).toBeLessThanOrEqual(3);
    await flow.goesOn();
    flow.end();
    expect((await stage.untilOnline()).build).toBe(running);
    expect(await stage.overlayPid()).toBe(overlay);
    expect(await stage.machine.sh("ls /var/lib/holdfast-versions")).toContain(`${broken.version}.failed`);
    await waitFor("the control plane knows", async () => (await stage.reported())["node.upgrade.state"] === "FAILED");
    // What failed once is not tried again by itself.
    expect((await stage.upgrade()).state).toBe("FAILED");
    expect((await stage.status()).build).toBe(running);
  }, 400_000);

  test("a newer package under traffic breaks no flow, and runs", async () => {
    const build = "20260401-000000.deb1";
    const newer = await releases.upgrade(BASE, build);
    await releases.deb(base, newer, build);
    const flow = await stage.flow();
    const overlay = await stage.overlayPid();
    const network = machineState(stage.machine.within);
    // A change of the network that waits for its confirmation is not cut short.
    await stage.tryNetwork();
    const pid = await stage.pidOf(AGENT);
    await stage.install(newer);
    expect(await stage.machine.property("holdfast-restart.service", "ActiveState")).toBe("active");
    expect(await stage.pidOf(AGENT)).toBe(pid);
    expect((await stage.status()).pendingChange).toBeDefined();
    await stage.machine.sh("holdfast network revert");
    await untilBack(pid);
    await flow.goesOn();
    flow.end();
    expect((await stage.untilOnline()).build).toBe(build);
    expect(await stage.overlayPid()).toBe(overlay);
    expect(differences(network, machineState(stage.machine.within))).toEqual([]);
  });

  test("a package that is purged leaves a machine as it was", async () => {
    await stage.machine.sh("dpkg --purge holdfast");
    expect(changedFiles(before, await filesOf(stage.machine))).toEqual([]);
  });

  test("the README's commands install, upgrade and remove", async () => {
    const readme = readFileSync(join(import.meta.dirname, "../../README.md"), "utf8");
    const install = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].find(([, text]) => text?.includes("install.sh"))?.[1];
    await stage.machine.copyIn(base.dir, "/root/release");
    await stage.machine.copyIn(good.dir, "/root/newer");
    // Whoever keeps it there has closed it to everybody else.
    await stage.machine.sh("chown -R 1234 /root/newer && chmod 0700 /root/newer && chmod 0600 /root/newer/*");
    await stage.bringLicense("by-the-readme");
    const { code, stdout, stderr } = await stage.machine.run(`cd /root && set -e\n${install ?? "false"}`, {
      limitMs: 250_000,
    });
    expect({ code, stderr: code === 0 ? "" : stdout + stderr }).toEqual({ code: 0, stderr: "" });
    for (const part of ["by-the-readme", base.version, good.version]) expect(stdout).toContain(part);
    expect(changedFiles(before, await filesOf(stage.machine))).toEqual([]);
  });
});
