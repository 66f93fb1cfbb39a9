import { describe, expect, it } from "vitest";
import { networkMachineInTurn, type NetworkMachine } from "../../../../support/network/network-machine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const networkMachine = networkMachineInTurn();
const MARK = "a".repeat(64);
const EVERYTHING = `table inet holdfast {
comment "holdfast:${MARK}"
map m { type ipv4_addr : interval ipv4_addr
flags interval
counter
elements = { 10.0.0.0/24 comment "one" : 11.0.0.0/24, 10.0.1.0/24 comment "two" : 11.0.1.0/24 }
}
set s { type ipv4_addr . ipv4_addr
flags interval
counter
elements = { 10.0.0.0/24 . 10.0.9.0/24, 10.0.3.0/24 . 10.0.9.0/24 }
}
set h { type inet_service
elements = { 1, 2, 3, 5, 8, 13, 21, 34, 55, 89 }
}
counter named { }
chain to_dest { type nat hook prerouting priority dstnat; policy accept;
dnat ip prefix to ip daddr map @m
}
chain inner {
tcp dport { 22, 80, 443 } counter accept
ip saddr . ip daddr @s counter drop
}
chain input { type filter hook input priority filter; policy accept;
iifname vmap { "lo" : jump inner, "va" : goto inner }
icmp type echo-request counter accept comment "pings"
limit rate 10/second log prefix "holdfast: "
}
}
`;

async function machineWith(table: string): Promise<NetworkMachine> {
  const machine = await networkMachine(tempDir());
  load(machine, table);
  return machine;
}

function load(machine: NetworkMachine, table: string): void {
  machine.sh(`nft -f - <<'N'\nadd table inet holdfast\ndelete table inet holdfast\n${table}N`);
}

const textOf = async (machine: NetworkMachine): Promise<string | undefined> => (await machine.observe()).firewall?.text;

describe("the table inet holdfast, read from the kernel", () => {
  it("is the same for any number of reads, uses and loads", async () => {
    const machine = await machineWith(EVERYTHING);
    const text = await textOf(machine);
    expect(text).toMatch(/^kernel:[\w-]{43}$/);
    machine.sh("ping -c 2 -i 0.2 -W 0.2 127.0.0.1 || true");
    machine.sh("nft add table ip holdfast; nft add table inet other");
    expect(machine.sh("nft list table inet holdfast")).toMatch(/packets [1-9]/);
    expect(await textOf(machine)).toBe(text);
    // Sets without intervals are listed in another order each time.
    for (let time = 0; time < 5; time += 1) {
      load(machine, EVERYTHING);
      expect(await textOf(machine)).toBe(text);
    }
    expect(machine.ran()).toStrictEqual(["ip"]);
    const again = await machineWith(EVERYTHING);
    expect(await textOf(again)).toBe(text);
  });

  it("is another one after any edit", async () => {
    const machine = await machineWith(EVERYTHING);
    const seen = new Set([await textOf(machine)]);
    const edits = [
      "delete element inet holdfast m { 10.0.0.0/24 }",
      "add element inet holdfast m { 10.0.0.0/24 : 11.0.7.0/24 }",
      "add element inet holdfast s { 10.0.4.0/24 . 10.0.9.0/24 }",
      "delete element inet holdfast h { 89 }",
      "add rule inet holdfast inner udp dport 53 accept",
      "insert rule inet holdfast inner udp dport 53 accept",
      "flush chain inet holdfast to_dest",
      "chain inet holdfast input { policy drop; }",
      "add chain inet holdfast more",
      "add set inet holdfast more { type ipv4_addr; }",
      "add counter inet holdfast more",
      "delete counter inet holdfast named",
      "flush table inet holdfast",
    ];
    for (const edit of edits) {
      machine.sh(`nft '${edit}'`);
      const text = await textOf(machine);
      expect(text).toMatch(/^kernel:[\w-]{43}$/);
      expect(seen, edit).not.toContain(text);
      seen.add(text);
    }
    expect(machine.ran()).toStrictEqual(["ip"]);
  });

  it("is missing when others of its name exist", async () => {
    const machine = await machineWith("table ip holdfast {\nchain c { }\n}\n");
    machine.sh("nft add table ip6 holdfast; nft add table inet holdfast2");
    expect(await machine.observe()).not.toHaveProperty("firewall");
    expect(machine.ran()).toStrictEqual(["ip"]);
    // Nor does an existing one look like them.
    const alone = await machineWith("table inet holdfast {\n}\n");
    const text = await textOf(alone);
    alone.sh(
      "nft add table ip holdfast; nft 'add chain ip holdfast c'; nft add table inet holdfast2; nft 'add chain inet holdfast2 c'",
    );
    expect(await textOf(alone)).toBe(text);
  });

  it("is read completely when long, with its comment", async () => {
    const machine = await networkMachine(tempDir());
    const chains = Array.from(
      { length: 3000 },
      (_, at) => `chain c${at} {\nip saddr 10.${at >> 8}.${at & 255}.1 counter\n}`,
    );
    const table = `table inet holdfast {\n${chains.join("\n")}\n}\n`;
    await machine.apply({ kind: "nft", text: table });
    const first = (await machine.observe()).firewall;
    expect(first?.digest).toMatch(/^[0-9a-f]{64}$/);
    machine.sh("nft flush chain inet holdfast c2999");
    expect((await machine.observe()).firewall?.digest).toBe("");
    await machine.apply({ kind: "nft", text: table });
    expect((await machine.observe()).firewall).toStrictEqual(first);
  });
});
