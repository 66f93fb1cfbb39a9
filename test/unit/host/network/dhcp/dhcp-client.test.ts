import { describe, expect, it } from "vitest";
import { systemClock } from "../../../../../src/host/clock.ts";
import type { ExecResult } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { dhcpUnit, linkOfUnit } from "../../../../../src/host/network/dhcp/dhcp-client.ts";
import { DhcpClients } from "../../../../../src/host/network/dhcp/dhcp.ts";
import { hostReader, type Reader } from "../../../../../src/host/reader.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const signal = new AbortController().signal;

/** A machine under systemd with these clients. */
function managed(
  installed: readonly string[],
  more: Partial<Reader> = {},
  exitCode = 0,
  answer: (words: string) => string = () => "7: x",
) {
  const reported: (readonly string[])[] = [];
  const reader: Reader = {
    ...hostReader(),
    read: () => undefined,
    list: () => undefined,
    fingerprint: (path) => (installed.includes(path) ? "there" : undefined),
    ...more,
  };
  const dir = tempDir();
  const clients = new DhcpClients({
    tools: {
      run: (file: string, args: readonly string[]): Promise<ExecResult> => {
        reported.push([file, ...args]);
        const code = file === "ip" ? 0 : exitCode;
        const stderr = code === 0 ? "" : "Failed\n";
        return Promise.resolve({
          exitCode: code,
          signal: undefined,
          stdout: answer(args.join(" ")),
          stderr,
          truncated: false,
        });
      },
    },
    files: hostFiles(),
    reader,
    clock: systemClock(),
    stateDir: dir,
    runDir: dir,
    isManaged: true,
  });
  return { clients, reported, dir };
}

describe("units", () => {
  it.each([
    ["eth0", "holdfast-dhcp@eth0.service"],
    ["eth0.30", "holdfast-dhcp@eth0.30.service"],
    ["wan-1", String.raw`holdfast-dhcp@wan\x2d1.service`],
    ["ü\\", String.raw`holdfast-dhcp@\xc3\xbc\x5c.service`],
  ])("are named for their link: %s", (link, unit) => {
    expect(dhcpUnit(link)).toBe(unit);
    expect(linkOfUnit(unit)).toBe(link);
  });

  it("of others are ignored", () => {
    expect(linkOfUnit("holdfast-agent.service")).toBeUndefined();
    expect(linkOfUnit("holdfast-dhcp@.service")).toBeUndefined();
  });
});

describe("under systemd", () => {
  it("runs the client in a unit of its own", async () => {
    const { clients, reported, dir } = managed(["/usr/sbin/dhclient", "/usr/sbin/udhcpc"]);
    await clients.start("eth0", true, signal);
    const files = `-cf ${dir}/dhcp/dhclient.conf -sf ${dir}/dhcp/script -lf ${dir}/dhcp/eth0.leases -pf ${dir}/dhclient-eth0.pid`;
    const variables = ["METRIC=307", `LEASE=${dir}/dhcp-eth0.lease`, `OFFER=${dir}/dhcp-eth0.offer`];
    const handed = variables.map((one) => `-e HOLDFAST_${one}`).join(" ");
    expect(reported.map((words) => words.join(" "))).toStrictEqual([
      "ip -o link show dev eth0",
      [
        "systemd-run --quiet --collect --service-type=exec --unit=holdfast-dhcp@eth0.service --property=Restart=always",
        "--property=RestartSec=5 --property=KillSignal=SIGTERM",
        `--property=ExecStop=${`/usr/sbin/dhclient -r -4 -q ${files} ${handed} eth0`.replaceAll(/\S+/g, '"$&"')}`,
        `${variables.map((one) => `--setenv=HOLDFAST_${one}`).join(" ")} --`,
        `/usr/sbin/dhclient -d -4 -q ${files} ${handed} eth0`,
      ].join(" "),
    ]);
  });

  it("finds it again by its unit, and stops it", async () => {
    const list = () => ["holdfast-dhcp@eth0.service", "other.service"];
    const { clients, reported } = managed(["/usr/sbin/udhcpc"], { list });
    expect([...(await clients.observe())]).toStrictEqual(["eth0"]);
    await clients.start("eth0", true, signal);
    expect(reported).toStrictEqual([]);
    await clients.stop("eth0", signal);
    expect(reported.map((words) => words.join(" "))).toStrictEqual([
      "ip -4 -json address show dev eth0",
      "systemctl stop -- holdfast-dhcp@eth0.service",
    ]);
  });

  const shown = (lifetime: number): string =>
    JSON.stringify([{ ifindex: 7, addr_info: [{ local: "192.0.2.9", prefixlen: 24, valid_life_time: lifetime }] }]);
  const selector = "table all dev eth0 proto dhcp metric 307";

  it("kills one whose address is permanent on the link, once the routes of its lease are removed", async () => {
    const answer = (words: string): string =>
      words.includes("route show") ? `[{"dst":"default","prefsrc":"192.0.2.9"}]` : shown(4_294_967_295);
    const { clients, reported } = managed(["/usr/sbin/dhclient"], {}, 0, answer);
    await clients.stop("eth0", signal);
    expect(reported.map((words) => words.join(" "))).toStrictEqual([
      "ip -4 -json address show dev eth0",
      `ip -4 -json route show ${selector}`,
      `ip -4 route flush ${selector}`,
      "systemctl kill --signal=SIGKILL -- holdfast-dhcp@eth0.service",
      "systemctl stop -- holdfast-dhcp@eth0.service",
      "ip -4 -json address show dev eth0",
    ]);
  });

  it("has one release its address that is still leased, whatever other permanent ones the link has", async () => {
    const both = (local: string) =>
      JSON.stringify([
        {
          ifindex: 7,
          addr_info: [
            { local: "192.0.2.50", prefixlen: 24, valid_life_time: 4_294_967_295 },
            { local, prefixlen: 24, valid_life_time: 60 },
          ],
        },
      ]);
    for (const route of [`[{"prefsrc":"192.0.2.9"}]`, "[]"]) {
      const answer = (words: string): string => (words.includes("route show") ? route : both("192.0.2.9"));
      const { clients, reported } = managed(["/usr/sbin/dhclient"], {}, 0, answer);
      await clients.stop("eth0", signal);
      expect(reported.map((words) => words.join(" ")).filter((line) => !line.includes(" show "))).toStrictEqual([
        "systemctl stop -- holdfast-dhcp@eth0.service",
      ]);
    }
    // Another client's server is not ours.
    const answer = (words: string): string =>
      words.includes("route show") ? `[{"prefsrc":"192.0.2.50"}]` : both("203.0.113.5");
    const { clients, reported } = managed(["/usr/sbin/dhclient"], {}, 0, answer);
    await clients.stop("eth0", signal);
    expect(reported.map(([, verb]) => verb)).toContain("kill");
  });

  it("reports the error of systemd", async () => {
    const { clients } = managed(["/usr/sbin/udhcpc"], {}, 1);
    const expected = { code: "dhcp-failed", message: "systemd-run: Failed" };
    await expect(clients.start("eth0", true, signal)).rejects.toMatchObject(expected);
    await expect(clients.stop("eth0", signal)).rejects.toMatchObject({ message: "systemctl: Failed" });
    // Nothing is loaded, so there is nothing to stop.
    await managed([], {}, 5).clients.stop("eth0", signal);
  });
});

describe("the choice", () => {
  it("is the best installed client", () => {
    const all = ["/usr/sbin/udhcpc", "/sbin/dhclient", "/usr/sbin/dhcpcd"];
    expect(managed(all).clients.choose()?.client).toBe("dhcpcd");
    expect(managed(all.slice(0, 2)).clients.choose()).toStrictEqual({ client: "dhclient", path: "/sbin/dhclient" });
    expect(managed([]).clients.choose()).toBeUndefined();
  });

  it("leaves a dhcpcd that manages the machine alone", () => {
    const read = (path: string) => (path === "/run/dhcpcd/pid" ? "77\n" : undefined);
    expect(managed(["/usr/sbin/dhcpcd"], { read }).clients.choose()).toBeUndefined();
  });
});
