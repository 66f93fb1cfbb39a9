import { expect, test } from "vitest";
import { hastened } from "../../support/fake-time.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const SECTION = {
  ...lanSection({ nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" }),
  forwarding: true,
  nats: [{ source: "10.9.0.0/24", masquerade: true }],
};
const CONTROLLER = "203.0.113.10";
/** As made by dockerd with iptables-nft: jumps, the rules of its bridge, and a policy for the rest. */
const DOCKER = [
  "iptables-nft -N DOCKER-USER",
  "iptables-nft -A FORWARD -j DOCKER-USER",
  "iptables-nft -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
  "iptables-nft -A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
  "iptables-nft -P FORWARD DROP",
];
/** The end of firewalld's chain for zones without a target. */
const FIREWALLD = `table inet firewalld {
  chain filter_FORWARD_ZONES {
    return
  }
  chain filter_FORWARD {
    type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
}`;
const stage = networkStage({ a: [] });

test("a chain that drops forwarded packets is named, left alone, and no longer named when removed", async () => {
  const machine = stage.machine("a");
  // A condition is reported once it has lasted a while.
  await machine.lab.endAgent("a");
  await machine.start(hastened(3));
  await machine.own(SECTION);
  const passes = (): boolean =>
    machine.sh(`ping -c 1 -W 2 ${CONTROLLER} || true`, machine.lan).includes(" 0% packet loss");
  const why = async (): Promise<string> => (await machine.verb("why")).stdout;
  const untilPrinted = (what: string, holds: (printed: string) => boolean): Promise<boolean> =>
    waitFor(what, async () => holds(await why()));
  expect(passes()).toBe(true);
  expect(await why()).not.toContain("forward-dropped");

  machine.sh(DOCKER.join(" && "));
  expect(passes()).toBe(false);
  await untilPrinted("Docker's chain is named", (printed) =>
    /FORWARD of the table ip filter.*policy drop/.test(printed),
  );
  expect((await machine.verb("why")).code).toBe(0);
  const isReported = async (): Promise<boolean> => JSON.stringify(await machine.reported()).includes("forward-dropped");
  await waitFor("it is reported", isReported);
  const kept = machine.sh("nft -s list table ip filter");

  machine.sh(`nft -f - <<'END'\n${FIREWALLD}\nEND`);
  machine.sh("iptables-nft -P FORWARD ACCEPT");
  await untilPrinted(
    "firewalld's chain is named, and Docker's not any more",
    (output) => /filter_FORWARD of the table inet firewalld.*reject/.test(output) && !output.includes("ip filter"),
  );
  expect(passes()).toBe(false);
  expect(machine.sh("nft -s list table ip filter")).toBe(kept.replace("policy drop", "policy accept"));

  machine.sh("nft delete table inet firewalld");
  await untilPrinted("nobody is named", (printed) => !printed.includes("forward-dropped"));
  expect(passes()).toBe(true);
}, 420_000);
