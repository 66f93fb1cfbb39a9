import { expect, test } from "vitest";
import { atOnce } from "../../support/at-once.ts";
import { differences } from "../../support/network/machine-state.ts";
import { WINDOW_SECONDS, type EdgeMachine } from "../../support/network/edge-machine.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A change that cuts the node off, on a machine of its own. */
interface Fault {
  readonly machine: string;
  readonly why: string;
  readonly section: object;
  /** Prepares the surroundings of the machine. */
  readonly before?: (machine: EdgeMachine) => void | Promise<void>;
  /** Pattern of the evidence. */
  readonly evidence: RegExp;
}

const WAN = { nic: "eth0", ip: "192.168.1.2/24" };
const CONTROLLER = "203.0.113.10";

const FAULTS: readonly Fault[] = [
  {
    machine: "wrong",
    why: "a gateway that is none",
    section: lanSection({ ...WAN, gateway: "192.168.1.99" }),
    evidence: /control plane/,
  },
  {
    machine: "wall",
    why: "a firewall that lets nothing of the control plane in",
    section: {
      ...lanSection({ ...WAN, gateway: "192.168.1.1" }),
      rules: [{ protocol: "any", source: `${CONTROLLER}/32`, dest: "0.0.0.0/0", action: "drop" }],
    },
    evidence: /control plane/,
  },
  {
    machine: "moved",
    why: "an address in a network that is not there",
    section: lanSection({ nic: "eth0", ip: "172.31.7.2/24", gateway: "172.31.7.1" }),
    evidence: /control plane/,
  },
  {
    machine: "portal",
    why: "a router with a captive portal in the way",
    section: lanSection({ ...WAN, gateway: "192.168.1.9" }),
    before: openPortal,
    evidence: /control plane/,
  },
  {
    machine: "twin",
    why: "an address that another machine has",
    section: lanSection({ nic: "eth0", ip: "192.168.1.5/24", gateway: "192.168.1.1" }),
    before: claimAddress,
    evidence: /control plane|address/,
  },
];

const stage = networkStage({
  wrong: [],
  wall: [],
  moved: [],
  portal: [{ name: "portal-box", last: 9 }],
  twin: [{ name: "twin-box", last: 5 }],
});

test("a change that cuts the node off is rolled back in time, and the control plane gets the reason", async () => {
  await atOnce(FAULTS, ({ why }) => why, suffer);
});

async function suffer({ machine: name, section, before, evidence }: Fault): Promise<void> {
  const machine = stage.machine(name);
  await machine.own(lanSection({ ...WAN, gateway: "192.168.1.1" }));
  await before?.(machine);
  const good = machine.state();
  const { documents } = await machine.status();
  const { status, text } = await machine.put(section);
  if (status !== 200) throw new Error(`HTTP ${status}: ${text}`);
  const begun = performance.now();
  await waitFor("the change is made", () => machine.differsFrom(good).length > 0);
  await machine.untilAs(good, (WINDOW_SECONDS + 15) * 1000);
  const tookMs = performance.now() - begun;
  if (tookMs > (WINDOW_SECONDS + 10) * 1000) throw new Error(`taken back only after ${tookMs} ms`);
  const reported = await waitFor("the control plane knows", async () => {
    const events = JSON.stringify(await machine.events());
    return evidence.test(events) && /was reverted/i.test(events) ? events : undefined;
  });
  expect(reported).toMatch(evidence);
  const refused = (documents.node?.version ?? 0) + 1;
  await waitFor("it is refused", async () => (await machine.status()).documents.node?.refused === refused);
  // Another pass changes nothing.
  expect(differences(good, machine.state())).toEqual([]);
}

/** Makes a host of the site answer all requests, in the name of their targets. */
async function openPortal(machine: EdgeMachine): Promise<void> {
  const box = machine.lab.network.on("portal-box");
  machine.sh("echo 1 > /proc/sys/net/ipv4/ip_forward", box);
  machine.sh("nft add table ip portal", box);
  machine.sh("nft 'add chain ip portal way { type nat hook prerouting priority dstnat; }'", box);
  machine.sh("nft add rule ip portal way ip daddr 203.0.113.0/24 tcp dport 1-65535 redirect to :8443", box);
  await machine.startPortal("portal-box", 8443);
}

/** Makes the router believe who has the address, as after an ARP reply. */
function claimAddress(machine: EdgeMachine): void {
  const mac = machine.sh("cat /sys/class/net/eth0/address", machine.lab.network.on("twin-box")).trim();
  machine.sh(`ip neigh replace 192.168.1.5 lladdr ${mac} dev lan nud permanent`, machine.router);
}
