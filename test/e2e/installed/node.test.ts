import { isDeepStrictEqual } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { missingForMachines, OUTSIDE_ADDRESS } from "../../support/upgrades/appliance-machine.ts";
import { AGENT, installedNode, METRICS, OVERLAY } from "../../support/installed-node.ts";
import type { InstalledStage } from "../../support/upgrades/installed-stage.ts";
import { differences, machineState } from "../../support/network/machine-state.ts";
import { isDue, TESTS_ALL } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

/** The user nobody, who may read the agent's state. */
const MEMBER = "setpriv --reuid=65534 --regid=65534 --groups=holdfast --";

/** On some days more than systemd takes for too many by default, so that its limit would show; the units are read on all days. */
const KILLS = TESTS_ALL ? 20 : isDue("an agent killed in a row") ? 6 : 2;

/** Requests the agent's status, once for each number of a range that follows, until one fails. */
const STATUS = "curl -s --fail-early --unix-socket /run/holdfast/agent.sock http://agent/v1/status";
/** Clients that the agent serves at the same time, without those that the test is itself. */
const CLIENTS = 12;

const missing = missingForMachines();

describe.skipIf(missing !== undefined)(`an installed node${missing === undefined ? "" : ` (${missing})`}`, () => {
  const node = installedNode();
  let stage: InstalledStage;
  beforeAll(() => void ({ stage } = node));

  test("it runs without an error from systemd", async () => {
    expect(await stage.machine.sh("systemctl --failed --no-legend")).toBe("");
    expect((await stage.status()).session.state).toBe("online");
    expect(await stage.machine.property(AGENT, "NRestarts")).toBe("0");
  });

  test("the file of the first boot is applied, and its license is removed", async () => {
    const file = await stage.machine.sh("cat /root/setup.json");
    expect(Object.keys(JSON.parse(file) as object)).toEqual(["settings"]);
    expect(await stage.machine.sh("holdfast setup --file /root/setup.json --once")).toContain("nothing to do");
    const metrics = await stage.machine.sh(`curl -sf http://${METRICS}/metrics`);
    expect(metrics).toContain('holdfast_session_state{state="online"} 1');
    expect(metrics).toContain('holdfast_section_state{section="network",state="converged"} 1');
  });

  test("its operator sees its state", async () => {
    const { machine } = stage;
    const seen = new Map((await stage.doctor()).map(({ family, name, code }) => [`${family} ${name}`, code]));
    for (const check of ["units holdfast-agent.service", `units ${OVERLAY}`, "agent session", "overlay connectors"])
      expect([check, seen.get(check)]).toEqual([check, "ok"]);
    for (const check of ["firewall table", "firewall marks", "upgrade release-keys", "configuration sections"])
      expect([check, seen.get(check)]).toEqual([check, "ok"]);
    expect(seen.get("upgrade standing")).toBe("none");
    expect(seen.get("overlay gateways")).toBe("none");
    expect(seen.get("time sync")).toBe("sync-missing");
    // A member of its group may only read.
    expect(await machine.sh(`${MEMBER} holdfast status`)).toMatch(/^session +online/m);
    const refused = await machine.run(`${MEMBER} holdfast upgrade --check; ${MEMBER} touch /run/holdfast/x`);
    expect(refused.stderr).toMatch(/only root may do this[^]*Permission denied/);
    // A reload re-evaluates at once, and is no restart.
    const pid = await stage.pidOf(AGENT);
    await machine.sh(`systemctl reload ${AGENT}`);
    expect(await stage.pidOf(AGENT)).toBe(pid);
    expect((await stage.status()).session.state).toBe("online");
    expect(await machine.sh("journalctl -q --no-pager -o cat HOLDFAST_PROGRAM=agent")).toContain("agent started");
    expect(await machine.sh("journalctl -q --no-pager -o cat HOLDFAST_PROGRAM=overlay")).not.toBe("");
    // Work beyond the agent's privileges runs as a unit of its own.
    expect(await machine.sh("holdfast capture --count 2 eth0", { limitMs: 60_000 })).toMatch(/ IP 203\.0\.113\.\d+/);
    const requested = `holdfast trigger tg-arping '{"iface":"eth0","host":"${OUTSIDE_ADDRESS}"}'`;
    expect(await machine.sh(requested, { limitMs: 60_000 })).toMatch(/bytes from .*203\.0\.113\.1/);
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

  test("creates removed directories and sockets below /run again, and loses no flow", async () => {
    const { machine } = stage;
    const flow = await stage.flow();
    const overlay = await stage.pidOf(OVERLAY);
    const agent = await stage.pidOf(AGENT);
    // Nothing is served in another user's directory.
    await machine.sh("rm -r /run/holdfast-overlay /run/holdfast && install -d -o nobody /run/holdfast");
    await waitFor("the overlay's exists again", async () => {
      const found = await machine.run("test -S /run/holdfast-overlay/overlay.sock");
      return found.code === 0;
    });
    const refused = "/run/holdfast belongs to another user";
    await waitFor("the log reports it", async () => (await machine.journal(AGENT)).includes(refused));
    expect([await stage.pidOf(AGENT), await machine.sh("ls /run/holdfast")]).toEqual([agent, ""]);
    // As on a system where /run is not a mount of its own.
    await machine.sh(`nsenter -t ${agent} -m mount -o remount,bind,ro /run`);
    await machine.sh("rm -r /run/holdfast /run/holdfast-overlay");
    await stage.untilRestarted(agent);
    await waitFor("the agent has the overlay", async () => {
      return (await stage.isListening()) && (await stage.overlayPid()) === overlay;
    });
    const checks = await stage.doctor();
    expect(checks.find(({ family, name }) => family === "overlay" && name === "connectors")?.code).toBe("ok");
    await flow.continues();
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

  test("an image is inspected by a user who may read it and nothing else", async () => {
    // The machine has no qemu-img: its replacement prints its user and privileges.
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
});
