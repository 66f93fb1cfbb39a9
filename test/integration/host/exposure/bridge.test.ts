import { expect, test } from "vitest";
import { restoreBridge } from "../../../../src/host/exposure/bridge.ts";
import { toolRunner } from "../../../../src/host/network/ip/tool.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

const { signal } = new AbortController();
const bridge = { link: "holdfast0", address: "172.18.0.1", prefixLength: 16 };
const IGMP = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n";
const ROUTES = "Iface\tDestination\tGateway \tFlags\n";

/** Two containers of ours, one of another network, and the machine's ends of their links. */
function rig(answer = "") {
  const { reader } = machineRoot({
    "/proc/11/net/route": `${ROUTES}eth0\t00000000\t010012AC\t0003\neth0\t000012AC\t00000000\t0001\n`,
    "/proc/11/net/igmp": `${IGMP}21\teth0      :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n`,
    "/proc/12/net/route": `${ROUTES}eth0\t00000000\t010012AC\t0003\n`,
    "/proc/12/net/igmp": `${IGMP}23\teth0      :     1      V3\n`,
    "/proc/13/net/route": `${ROUTES}eth0\t00000000\t010011AC\t0003\n`,
    "/proc/13/net/igmp": `${IGMP}25\teth0      :     1      V3\n`,
  });
  const links = [
    { ifname: "vetha", link_index: 21 },
    { ifname: "vethb", link_index: 23, master: "other0" },
    { ifname: "vethc", link_index: 25 },
    { ifname: "vethd", link_index: 99 },
  ];
  const tools = fakeTools({
    ip: `case "$*" in *-json*) echo '${JSON.stringify(links)}';; *) cat >>"$0.lines"; ${answer} ;; esac`,
  });
  return { tools, lines: () => tools.read("ip.lines"), deps: { tools: toolRunner(tools.exec), reader } };
}

test("creates the bridge again, with only those ends of its own containers that have no master", async () => {
  const { deps, lines } = rig();
  await restoreBridge(deps, bridge, [11, 12, 13, 14], signal);
  expect(lines()).toEqual([
    "link add holdfast0 type bridge",
    "link set holdfast0 addrgenmode none",
    "address add 172.18.0.1/16 broadcast + dev holdfast0",
    "link set holdfast0 up",
    "link set vetha master holdfast0",
    "link set vetha up",
  ]);
});

test("removes an unfinished bridge, and reports the refusal", async () => {
  const { deps, lines } = rig('if [ -e "$0.once" ]; then echo no >&2; exit 1; fi; touch "$0.once"');
  await expect(restoreBridge(deps, bridge, [11], signal)).rejects.toMatchObject({ code: "ip-failed" });
  expect(lines().at(-1)).toBe("link delete holdfast0");
});

test("leaves a link that another program made meanwhile alone", async () => {
  const { deps, lines } = rig("echo File exists >&2; exit 2");
  await expect(restoreBridge(deps, bridge, [11], signal)).rejects.toMatchObject({ code: "ip-failed" });
  expect(lines()).toEqual(["link add holdfast0 type bridge"]);
});
