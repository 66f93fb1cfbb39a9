import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { firewallDigest } from "../../../../../src/host/network/firewall/firewall.ts";
import { networkMachineInTurn } from "../../../../support/network/network-machine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const networkMachine = networkMachineInTurn();
const table = (...lines: readonly string[]): string => `table inet holdfast {\n${lines.join("\n")}\n}\n`;
const INPUT = table("chain hf_in {", "type filter hook input priority 0", "icmp type echo-request counter drop", "}");
const OUTPUT = table("chain hf_out {", "type filter hook output priority 0", "}");
const STRANGERS = `nft -f - <<'N'
table ip nat { chain DOCKER { }
chain PREROUTING { type nat hook prerouting priority dstnat; policy accept; fib daddr type local counter jump DOCKER
}
}
table inet firewalld { chain filter_INPUT { type filter hook input priority filter + 10; policy accept; ct state established accept
}
}
N`;

/** A search path with an nft that fails every load and nothing else. */
function failingLoads(dir: string): string {
  const tools = join(dir, "tools");
  mkdirSync(tools);
  symlinkSync("/usr/sbin/ip", join(tools, "ip"));
  const nft =
    '#!/bin/sh\ncase $1 in -f) echo "Error: Could not process rule: No buffer space available" >&2; exit 1 ;; esac\n';
  writeFileSync(join(tools, "nft"), `${nft}exec /usr/sbin/nft "$@"\n`);
  chmodSync(join(tools, "nft"), 0o755);
  return `${tools}:/usr/bin:/bin`;
}

describe.each([
  { lists: false, how: "read from the kernel" },
  { lists: true, how: "listed by nft" },
])("the table, $how,", ({ lists }) => {
  it("is loaded completely, and is recognized", async () => {
    const machine = await networkMachine(tempDir(), { lists });
    machine.sh(STRANGERS);
    const before = machine.sh("nft -s list ruleset");
    await machine.apply({ kind: "nft", text: INPUT });
    expect(machine.ran()).toStrictEqual(lists ? ["nft", "nft"] : ["nft"]);
    const first = (await machine.observe()).firewall;
    expect(first?.digest).toBe(firewallDigest(INPUT));
    await machine.apply({ kind: "nft", text: OUTPUT });
    const second = (await machine.observe()).firewall;
    expect(second?.digest).toBe(firewallDigest(OUTPUT));
    expect(second?.text).not.toBe(first?.text);
    expect(machine.sh("nft list table inet holdfast")).not.toContain("hf_in");
    expect(machine.sh("nft -s list ruleset")).toContain(before.trim());
    const restarted = await machine.renew();
    expect((await restarted.observe()).firewall).toStrictEqual(second);
    await restarted.apply({ kind: "nft", text: undefined });
    expect(await restarted.observe()).not.toHaveProperty("firewall");
    // Repeating it is no error.
    await restarted.apply({ kind: "nft", text: undefined });
    expect(restarted.sh("nft -s list ruleset")).toBe(before);
  });

  it("has a hash of its edits and not of its counters", async () => {
    const machine = await networkMachine(tempDir(), { lists });
    await machine.apply({ kind: "nft", text: INPUT });
    const first = (await machine.observe()).firewall;
    machine.sh("ping -c 1 -W 0.2 127.0.0.1 || true");
    expect(machine.sh("nft list table inet holdfast")).toContain("packets 1 ");
    expect((await machine.observe()).firewall).toStrictEqual(first);
    machine.sh("nft flush chain inet holdfast hf_in");
    expect((await machine.observe()).firewall?.digest).toBe("");
    const restarted = await machine.renew();
    expect((await restarted.observe()).firewall?.digest).toBe("");
    await restarted.apply({ kind: "nft", text: INPUT });
    expect((await restarted.observe()).firewall).toStrictEqual(first);
    restarted.sh("nft delete table inet holdfast; nft add table inet holdfast");
    expect((await restarted.observe()).firewall?.digest).toBe("");
  });

  it("is recognized, and so are edits, when read in the other way", async () => {
    const machine = await networkMachine(tempDir(), { lists });
    await machine.apply({ kind: "nft", text: INPUT });
    expect((await machine.observe()).firewall?.digest).toBe(firewallDigest(INPUT));
    const other = await machine.renew({ lists: !lists });
    // Messages of the kernel cannot be compared with a list: then the table is loaded again.
    expect((await other.observe()).firewall?.digest).toBe(lists ? firewallDigest(INPUT) : "");
    if (!lists) return;
    expect(other.ran()).toStrictEqual(["ip", "nft"]);
    expect((await other.observe()).firewall?.digest).toBe(firewallDigest(INPUT));
    expect(other.ran()).toStrictEqual(["ip"]);
    const listing = await other.renew({ lists });
    await listing.apply({ kind: "nft", text: INPUT });
    await listing.observe();
    listing.sh("nft flush chain inet holdfast hf_in");
    const reading = await listing.renew({ lists: false });
    expect((await reading.observe()).firewall?.digest).toBe("");
    expect((await reading.observe()).firewall?.digest).toBe("");
  });
});

describe("the record of the loaded table", () => {
  it.each([
    ["read from the kernel", false],
    ["listed by nft", true],
  ])("is made again, %s, when the agent was killed between load and record", async (_how, lists) => {
    const machine = await networkMachine(tempDir(), { lists });
    await machine.apply({ kind: "nft", text: INPUT });
    // As left by the killed load.
    const mark = `comment "holdfast:${firewallDigest(OUTPUT)}"`;
    machine.sh(`nft -f - <<'N'\ndelete table inet holdfast\n${OUTPUT.replace("{\n", `{\n${mark}\n`)}N`);
    const restarted = await machine.renew();
    expect((await restarted.observe()).firewall?.digest).toBe(firewallDigest(OUTPUT));
    restarted.sh("nft add rule inet holdfast hf_out tcp dport 7 accept");
    expect((await (await restarted.renew()).observe()).firewall?.digest).toBe("");
  });

  it("is kept by a failing load: edits meanwhile are detected", async () => {
    const dir = tempDir();
    const machine = await networkMachine(dir);
    await machine.apply({ kind: "nft", text: INPUT });
    const failing = await machine.renew({ searchPath: failingLoads(dir) });
    await expect(failing.apply({ kind: "nft", text: OUTPUT })).rejects.toMatchObject({ code: "nft-failed" });
    failing.sh("nft flush chain inet holdfast hf_in");
    expect((await failing.observe()).firewall?.digest).toBe("");
  });

  it("is not that of a deleted table", async () => {
    const machine = await networkMachine(tempDir());
    await machine.apply({ kind: "nft", text: INPUT });
    machine.sh("nft delete table inet holdfast");
    expect(await machine.observe()).not.toHaveProperty("firewall");
    await machine.apply({ kind: "nft", text: INPUT });
    expect((await machine.observe()).firewall?.digest).toBe(firewallDigest(INPUT));
  });
});

describe("the table", () => {
  it("is checked only when nft refuses to load it", async () => {
    const machine = await networkMachine(tempDir());
    await machine.apply({ kind: "nft", text: INPUT });
    expect(machine.ran()).toStrictEqual(["nft"]);
    const bad = { kind: "nft", text: table("no such thing") } as const;
    await expect(machine.apply(bad)).rejects.toMatchObject({ code: "nft-refused" });
    expect(machine.ran()).toStrictEqual(["nft", "nft"]);
  });

  it("replaces one that appeared after the read", async () => {
    const machine = await networkMachine(tempDir());
    await machine.apply({ kind: "nft", text: OUTPUT });
    await machine.apply({ kind: "nft", text: undefined });
    expect(await machine.observe()).not.toHaveProperty("firewall");
    machine.sh("nft 'add table inet holdfast; add chain inet holdfast theirs'");
    await machine.apply({ kind: "nft", text: INPUT });
    expect(machine.sh("nft list table inet holdfast")).not.toContain("theirs");
    expect((await machine.observe()).firewall?.digest).toBe(firewallDigest(INPUT));
  });

  it("stays unchanged when the text is refused", async () => {
    const machine = await networkMachine(tempDir());
    await machine.apply({ kind: "nft", text: INPUT });
    const before = (await machine.observe()).firewall;
    const bad = table("chain hf_in {", "type filter hook input priority 0", "no such thing", "}");
    await expect(machine.apply({ kind: "nft", text: bad })).rejects.toMatchObject({
      code: "nft-refused",
      message: expect.stringMatching(/^nft: line \d+, no such thing: Error: syntax error/) as string,
    });
    for (const text of [
      "table inet other {\n}\n",
      "flush ruleset\n",
      `${INPUT}table ip nat {\n}\n`,
      `${INPUT}flush ruleset\n`,
      "table inet holdfast {\n",
      "table inet holdfast {\n}\n}\n",
      "",
    ])
      await expect(machine.apply({ kind: "nft", text })).rejects.toMatchObject({ code: "nft-refused" });
    expect((await machine.observe()).firewall).toStrictEqual(before);
  });

  it("stays unchanged when loading fails after the check has passed", async () => {
    const dir = tempDir();
    const machine = await networkMachine(dir);
    await machine.apply({ kind: "nft", text: INPUT });
    const before = (await machine.observe()).firewall;
    const failing = await machine.renew({ searchPath: failingLoads(dir) });
    await expect(failing.apply({ kind: "nft", text: OUTPUT })).rejects.toMatchObject({
      code: "nft-failed",
      message: expect.stringContaining("No buffer space available") as string,
    });
    expect((await failing.observe()).firewall).toStrictEqual(before);
  });

  it("reports nft's error when it cannot be listed", async () => {
    const dir = tempDir();
    const tools = join(dir, "tools");
    mkdirSync(tools);
    symlinkSync("/usr/sbin/ip", join(tools, "ip"));
    writeFileSync(join(tools, "nft"), '#!/bin/sh\necho "Error: Operation not permitted" >&2; exit 1\n');
    chmodSync(join(tools, "nft"), 0o755);
    const machine = await networkMachine(dir, { searchPath: `${tools}:/usr/bin:/bin`, lists: true });
    await machine.apply({ kind: "sysctl", values: [] });
    await expect(machine.observe()).rejects.toMatchObject({
      code: "nft-failed",
      message: "nft: Error: Operation not permitted",
    });
  });

  it("accepts 5,000 translations that count their hits", async () => {
    const machine = await networkMachine(tempDir());
    const block = (net: number, at: number): string => `${net}.${at >> 8}.${at & 255}.0/24`;
    const elements = Array.from({ length: 5000 }, (_, at) => `${block(10, at)} : ${block(11, at)}`).join(",\n");
    const text = table(
      `map m { type ipv4_addr : interval ipv4_addr; flags interval; counter; elements = { ${elements} } }`,
      "chain hf_dnat {",
      "type nat hook prerouting priority dstnat",
      "dnat ip prefix to ip daddr map @m",
      "}",
    );
    await machine.apply({ kind: "nft", text });
    expect((await machine.observe()).firewall?.digest).toBe(firewallDigest(text));
    expect(machine.sh("nft list map inet holdfast m | grep -o 'counter packets 0' | wc -l").trim()).toBe("5000");
  });
});
