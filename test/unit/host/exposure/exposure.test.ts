import { describe, expect, it } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import type { ExecResult } from "../../../../src/host/process/exec.ts";
import { exposureDriver, type ExposureChange } from "../../../../src/host/exposure/driver.ts";
import { ExposureRecord } from "../../../../src/host/exposure/record.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const { signal } = new AbortController();
const OK: ExecResult = { exitCode: 0, signal: undefined, stdout: "", stderr: "", truncated: false };
const TABLE = "table inet holdfast_containers {\n}\n";
const PORTS: ExposureChange = {
  is: "ports",
  text: TABLE,
  userRules: ["-o holdfast0"],
  mapped: ["a tcp 1 b:2"],
  ended: [],
};

/** A driver over tools with the test's answers, which otherwise succeed without output. */
function driverOver(answer: (line: string) => Partial<ExecResult> | undefined = () => undefined, dir = tempDir()) {
  const ran: string[] = [];
  const record = new ExposureRecord(hostFiles(), hostReader(), dir);
  const driver = exposureDriver({
    record,
    conntrack: { remove: () => Promise.resolve(0) },
    tables: { read: () => undefined },
    tools: {
      run(file, args, _, input = "") {
        const line = [file, ...args].join(" ");
        ran.push(input === "" ? line : `${line} < ${input.trim().split("\n").join("; ")}`);
        return Promise.resolve({ ...OK, ...answer(line) });
      },
    },
  });
  return { driver, record, ran, dir };
}

const noTable = (line: string): Partial<ExecResult> | undefined => {
  if (line.startsWith("nft -s list")) return { exitCode: 1, stderr: "Error: No such file or directory" };
  return line.startsWith("ip -4") ? { stdout: "[]\n[]\n[{}]\n" } : undefined;
};

describe("reading", () => {
  it("starts no process if nothing is wanted and nothing is ours", async () => {
    const { driver, ran } = driverOver();
    const state = await driver.observe({ ports: false, routing: false }, signal);
    expect(state).toMatchObject({ firewall: undefined, rules: [], routes: [], links: [], hasNetwork: false });
    expect(ran).toStrictEqual([]);
  });

  it("looks for remains of an earlier agent, until they are removed", async () => {
    const { driver, record, dir } = driverOver(noTable);
    await driver.apply(PORTS, () => Promise.resolve(undefined), signal);
    expect(await record.content()).toMatchObject({
      hasFirewall: true,
      mapped: PORTS.is === "ports" ? PORTS.mapped : [],
    });
    const next = driverOver(noTable, dir);
    await next.driver.observe({ ports: false, routing: false }, signal);
    expect(next.ran).toStrictEqual(["nft -s list table inet holdfast_containers", "iptables -w 5 -S DOCKER-USER"]);
    await next.driver.observe({ ports: false, routing: false }, signal);
    expect(next.ran).toHaveLength(2);
    expect(await next.record.content()).toMatchObject({ hasFirewall: false, mapped: [] });
  });

  it.each([
    ["is not installed", () => Promise.reject(new HostError("tool-missing", "nft is not installed"))],
    ["may not be used", () => Promise.resolve({ ...OK, exitCode: 1, stderr: "Operation not permitted" })],
  ])("stops managing the firewall when nft %s", async (_, run) => {
    let requested = 0;
    const driver = exposureDriver({
      record: new ExposureRecord(hostFiles(), hostReader(), tempDir()),
      conntrack: { remove: () => Promise.resolve(0) },
      tables: { read: () => undefined },
      tools: {
        run() {
          requested += 1;
          return run();
        },
      },
    });
    for (const _again of [1, 2]) {
      const { unusable } = await driver.observe({ ports: true, routing: false }, signal);
      expect(unusable).toMatch(/nft is not installed|not permitted/);
    }
    expect(requested).toBe(1);
  });

  it("distinguishes our rules, routes and links from others", async () => {
    const rules = [
      { priority: 0, src: "all", table: "255" },
      { priority: 5110, src: "172.18.0.16", table: "1000", protocol: "219" },
      { priority: 5111, src: "172.18.0.16", action: "7", protocol: "219" },
      { priority: 5110, src: "10.0.0.1", table: "7", protocol: "218" },
    ];
    const routes = [
      { dst: "default", gateway: "10.0.0.2", dev: "hfc0123456789ab", table: "230000", flags: ["onlink"] },
      { dst: "172.18.0.0/16", dev: "holdfast0", table: "1000", scope: "253", flags: [] },
    ];
    const links = [{ ifname: "hfc0123456789ab" }, {}, { ifname: "veth1" }];
    const { driver } = driverOver(() => ({
      stdout: [rules, routes, links].map((one) => JSON.stringify(one)).join("\n"),
    }));
    expect(await driver.observe({ ports: false, routing: true }, signal)).toMatchObject({
      rules: ["priority 5110 from 172.18.0.16 lookup 1000", "priority 5111 from 172.18.0.16 unreachable"],
      routes: [
        "default via 10.0.0.2 dev hfc0123456789ab onlink table 230000",
        "172.18.0.0/16 dev holdfast0 scope link table 1000",
      ],
      links: ["hfc0123456789ab"],
    });
    const { driver: other } = driverOver(() => ({ stdout: "nonsense" }));
    await expect(other.observe({ ports: false, routing: true }, signal)).rejects.toMatchObject({ code: "bad-output" });
  });
});

describe("the engine's chain", () => {
  const listing = (...rules: readonly string[]): string =>
    ["-N DOCKER-USER", ...rules.map((rule) => `-A DOCKER-USER ${rule}`), "-A DOCKER-USER -j RETURN", ""].join("\n");
  const ours = (rule: string): string => `${rule} -m comment --comment "holdfast:containers" -j ACCEPT`;

  it("gets missing rules, and loses surplus ones of ours; rules of others stay", async () => {
    const stdout = listing("-s 10.0.0.1/32 -j DROP", ours("-o hfc+"), ours("-o old0"), ours("-o hfc+"));
    const { driver, ran } = driverOver((line) => (line.includes("-S DOCKER-USER") ? { stdout } : undefined));
    const userRules = ["-o holdfast0", "-o hfc+"];
    await driver.apply({ ...PORTS, userRules }, () => Promise.resolve(undefined), signal);
    const tail = "-m comment --comment holdfast:containers -j ACCEPT";
    expect(ran.filter((line) => line.startsWith("iptables"))).toStrictEqual([
      "iptables -w 5 -S DOCKER-USER",
      `iptables -w 5 -I DOCKER-USER -o holdfast0 ${tail}`,
      `iptables -w 5 -D DOCKER-USER -o old0 ${tail}`,
      `iptables -w 5 -D DOCKER-USER -o hfc+ ${tail}`,
    ]);
  });

  it("is not created if missing", async () => {
    const { driver, ran } = driverOver((line) => (line.startsWith("iptables") ? { exitCode: 1 } : noTable(line)));
    await driver.apply(PORTS, () => Promise.resolve(undefined), signal);
    expect(ran.filter((line) => line.startsWith("iptables"))).toHaveLength(1);
    expect((await driver.observe({ ports: true, routing: false }, signal)).userRules).toBeUndefined();
  });
});

describe("a link into a container", () => {
  const virtual = {
    link: "hfc0123456789ab",
    engineId: "e1",
    inside: "eth1",
    address: "10.200.0.1",
    route: "default via 10.200.0.1 dev hfc0123456789ab onlink table 5",
  };
  const attach = { is: "attach", virtual } as const;

  it("is created completely", async () => {
    const { driver, ran } = driverOver();
    await driver.apply(attach, () => Promise.resolve(77), signal);
    expect(ran).toStrictEqual([
      "nsenter -t 77 -n -- true",
      "ip -batch - < link add hfc0123456789ab type veth peer name hfc0123456789ap; link set hfc0123456789ap netns 77",
      "nsenter -t 77 -n -- ip -batch - < link set hfc0123456789ap name eth1; address add 10.200.0.1/32 dev eth1; link set eth1 up",
      "ip -batch - < link set hfc0123456789ab up; route replace default via 10.200.0.1 dev hfc0123456789ab onlink table 5 protocol 219",
    ]);
  });

  it("is not retried when the agent lacks the permission", async () => {
    const { driver, ran } = driverOver((line) =>
      line.startsWith("nsenter") ? { exitCode: 1, stderr: "nsenter: Operation not permitted" } : noTable(line),
    );
    await driver.apply(attach, () => Promise.resolve(77), signal);
    expect(ran).toHaveLength(1);
    expect((await driver.observe({ ports: false, routing: true }, signal)).closed).toMatch(/not permitted/);
  });

  it("is removed when its second part fails, and skips a container that has ended", async () => {
    const { driver, ran } = driverOver((line) =>
      line.endsWith("ip -batch -") && line.startsWith("nsenter") ? { exitCode: 1, stderr: "File exists" } : undefined,
    );
    await expect(driver.apply(attach, () => Promise.resolve(77), signal)).rejects.toMatchObject({ code: "ip-failed" });
    expect(ran.at(-1)).toBe("ip -batch - < link delete hfc0123456789ab");
    const idle = driverOver();
    await idle.driver.apply(attach, () => Promise.resolve(0), signal);
    expect(idle.ran).toStrictEqual([]);
  });
});
