import { describe, expect, it } from "vitest";
import { LookAhead, type ChangeWatch } from "../../../../../src/host/network/firewall/look-ahead.ts";
import { networkMachine } from "../../../../support/network-machine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const TEXT = "table inet holdfast {\nchain c {\ntype filter hook input priority 0\n}\n}\n";
// The kernel may tell of a carrier a second late.
const PAIR = `ip link add va type veth peer name vb && ip link set va up && ip link set vb up
until ip link show va | grep -q "state UP" && ip link show vb | grep -q "state UP"; do sleep 0.05; done; true`;
const [LOAD, BLACKHOLE] = [{ kind: "nft", text: TEXT } as const, "ip route add blackhole 10.7.0.0/16"];

describe("a look that is begun beside a load", () => {
  it("spares the next one, and shows what that would have shown", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    machine.sh(`ip address add 192.0.2.1/24 dev va; ip rule add priority 77 table 5; ${BLACKHOLE}`);
    await machine.apply(LOAD);
    const { firewall, ...ahead } = await machine.observe();
    expect(machine.ran()).toStrictEqual([]);
    expect(firewall).toBeDefined();
    const { firewall: read, ...seen } = await machine.observe();
    expect([seen, read]).toStrictEqual([ahead, { ...firewall, text: read?.text }]);
    expect(machine.ran()).toStrictEqual(["ip"]);
  });

  it.each([
    ["a link", "ip link add vc type veth peer name vd"],
    ["a link's state", "ip link set va mtu 1400"],
    ["an altname", "ip link property add dev va altname holdfast:va"],
    ["an address", "ip address add 192.0.2.1/24 dev va"],
    ["a route", BLACKHOLE],
    ["a rule", "ip rule add priority 77 from 10.0.0.0/8 table 5"],
    ["what a route leads to", "ip nexthop add id 7 blackhole"],
  ])("is not used when somebody has changed %s since", async (_, change) => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    await machine.apply(LOAD);
    machine.sh(change);
    const { firewall, ...state } = await machine.observe();
    expect(machine.ran()).toStrictEqual(["ip"]);
    const { firewall: read, ...seen } = await machine.observe();
    expect([seen, read]).toStrictEqual([state, { ...firewall, text: read?.text }]);
  });

  it("is not used after lines of ours, and is begun anew with the next load", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    await machine.apply(LOAD);
    await machine.apply({ kind: "ip", lines: ["route add blackhole 10.7.0.0/16 proto 218"] });
    expect((await machine.observe()).routes).toHaveLength(1);
    expect(machine.ran()).toStrictEqual(["ip"]);
    await machine.apply({ kind: "nft", text: undefined });
    expect(await machine.observe()).not.toHaveProperty("firewall");
    expect(machine.ran()).toStrictEqual([]);
  });

  it("is not begun where the kernel cannot be listened to", async () => {
    const machine = await networkMachine(tempDir(), { lists: true }, PAIR);
    await machine.apply(LOAD);
    expect(machine.ran()).toStrictEqual(["nft", "nft"]);
    await machine.observe();
    expect(machine.ran()).toStrictEqual(["ip", "nft"]);
  });
});

describe("what is kept of a look", () => {
  const watches: { hasChanged: boolean; isClosed: boolean }[] = [];
  const watch = (): ChangeWatch => {
    const state = { hasChanged: false, isClosed: false };
    watches.push(state);
    return { hasChanged: () => state.hasChanged, [Symbol.dispose]: () => void (state.isClosed = true) };
  };

  it("is handed out once, unless it has changed, and no watch stays open", async () => {
    const ahead = new LookAhead<string>(watch);
    await ahead.begin(() => Promise.resolve("seen"));
    expect([ahead.take(), ahead.take()]).toStrictEqual(["seen", undefined]);
    await ahead.begin(() => Promise.resolve("seen"));
    const [, last] = watches;
    if (last !== undefined) last.hasChanged = true;
    expect(ahead.take()).toBeUndefined();
    await ahead.begin(() => Promise.resolve("first"));
    await ahead.begin(() => Promise.resolve("second"));
    expect(ahead.take()).toBe("second");
    await ahead.begin(() => Promise.reject(new Error("no such tool")));
    expect(ahead.take()).toBeUndefined();
    await ahead.begin(() => Promise.resolve("dropped"));
    ahead.drop();
    expect(ahead.take()).toBeUndefined();
    expect(watches.map(({ isClosed }) => isClosed)).toStrictEqual(watches.map(() => true));
    expect(watches).toHaveLength(6);
  });

  it("is nothing without a watch, and then nobody looks", async () => {
    let looks = 0;
    const ahead = new LookAhead<string>(() => undefined);
    await ahead.begin(() => Promise.resolve(`${(looks += 1)}`));
    expect([ahead.take(), looks]).toStrictEqual([undefined, 0]);
  });
});
