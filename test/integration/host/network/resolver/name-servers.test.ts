import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { ExecResult } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { NetworkLedger } from "../../../../../src/host/network/state/ledger.ts";
import { NameServers } from "../../../../../src/host/network/resolver/name-servers.ts";
import { hostReader, type Reader } from "../../../../../src/host/reader.ts";
import { networkMachine } from "../../../../support/network/network-machine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const signal = new AbortController().signal;
const FORMER = "search example.net\nnameserver 192.0.2.1\noptions timeout:1\n";

/** Name servers of a machine whose resolv.conf is a file in a directory of its own. */
function servers(
  texts: Readonly<Record<string, string>> = {},
  refusal: (args: readonly string[]) => string = () => "",
) {
  const dir = tempDir();
  const path = join(dir, "resolv.conf");
  const reported: string[] = [];
  const real = hostReader();
  const reader: Reader = { ...real, read: (path) => texts[path] ?? real.read(path) };
  const tools = {
    run: (file: string, args: readonly string[]): Promise<ExecResult> => {
      reported.push([file, ...args].join(" "));
      const stderr = refusal(args);
      const exitCode = stderr === "" ? 0 : 1;
      return Promise.resolve({ exitCode, signal: undefined, stdout: "", stderr, truncated: false });
    },
  };
  const make = () =>
    new NameServers({ tools, reader, ledger: new NetworkLedger(hostFiles(), reader, join(dir, "state")), path });
  return { path, reported, make, text: () => readFileSync(path, "utf8") };
}

describe("a plain file", () => {
  it("is replaced, marked, and restored", async () => {
    const { path, make, text } = servers();
    writeFileSync(path, FORMER);
    chmodSync(path, 0o640);
    expect(await make().observe()).toBeUndefined();
    await make().set(["198.51.100.1", "198.51.100.2"], signal);
    expect(text().split("\n")).toStrictEqual([
      "# Written by holdfast; what was here before comes back when the name servers are handed back.",
      "nameserver 198.51.100.1",
      "nameserver 198.51.100.2",
      "search example.net",
      "options timeout:1",
      "",
    ]);
    expect(await make().observe()).toStrictEqual(["198.51.100.1", "198.51.100.2"]);
    await make().set(["198.51.100.3"], signal);
    expect(await make().observe()).toStrictEqual(["198.51.100.3"]);
    await make().set(undefined, signal);
    expect(text()).toBe(FORMER);
    expect(statSync(path).mode & 0o777).toBe(0o640);
    expect(await make().observe()).toBeUndefined();
  });

  it("is readable by everybody, under any umask", async () => {
    const { path, make } = servers();
    writeFileSync(path, FORMER);
    chmodSync(path, 0o644);
    const umask = process.umask(0o077);
    onTestFinished(() => void process.umask(umask));
    await make().set(["198.51.100.1"], signal);
    expect(statSync(path).mode & 0o777).toBe(0o644);
    await make().set(undefined, signal);
    expect(statSync(path).mode & 0o777).toBe(0o644);
  });

  it("that did not exist is removed again", async () => {
    const { path, make } = servers();
    await make().set(["198.51.100.1"], signal);
    expect(existsSync(path)).toBe(true);
    await make().set(undefined, signal);
    expect(existsSync(path)).toBe(false);
  });

  it("that was a symbolic link becomes one again", async () => {
    const { path, make } = servers();
    writeFileSync(`${path}.other`, FORMER);
    symlinkSync("resolv.conf.other", path);
    await make().set(["198.51.100.1"], signal);
    expect(lstatSync(path).isSymbolicLink()).toBe(false);
    expect(readFileSync(`${path}.other`, "utf8")).toBe(FORMER);
    await make().set(undefined, signal);
    expect(readlinkSync(path)).toBe("resolv.conf.other");
  });

  it("shows foreign content that replaced ours, and keeps it", async () => {
    const { path, make, text } = servers();
    writeFileSync(path, FORMER);
    await make().set(["198.51.100.1"], signal);
    writeFileSync(path, "nameserver 203.0.113.1\n");
    expect(await make().observe()).toStrictEqual(["203.0.113.1"]);
    await make().set(undefined, signal);
    expect(text()).toBe("nameserver 203.0.113.1\n");
    expect(await make().observe()).toBeUndefined();
  });

  it("keeps its servers when the previous content is unknown", async () => {
    const { path, make } = servers();
    writeFileSync(path, FORMER);
    await make().set(["198.51.100.1"], signal);
    const other = servers();
    writeFileSync(other.path, readFileSync(path));
    expect(await other.make().observe()).toStrictEqual(["198.51.100.1"]);
    await other.make().set(["198.51.100.2"], signal);
    await other.make().set(undefined, signal);
    expect(other.text()).toBe("nameserver 198.51.100.1\nsearch example.net\noptions timeout:1\n");
  });

  it("that is a pipe is replaced, without blocking", async () => {
    const { path, make, text } = servers();
    execFileSync("mkfifo", [path]);
    await make().set(["198.51.100.1"], signal);
    expect(text()).toContain("nameserver 198.51.100.1");
  });

  it("that is too large to store is not changed", async () => {
    const { path, make, text } = servers();
    const large = FORMER + "# more\n".repeat(10_000);
    writeFileSync(path, large);
    await expect(make().set(["198.51.100.1"], signal)).rejects.toMatchObject({ code: "resolver-failed" });
    expect(text()).toBe(large);
    expect(await make().observe()).toBeUndefined();
  });

  it("reports that it cannot be written", async () => {
    const { make, path } = servers();
    const set = new NameServers({
      tools: { run: () => Promise.reject(new Error("nothing is to be run")) },
      reader: hostReader(),
      ledger: new NetworkLedger(hostFiles(), hostReader(), join(tempDir(), "state")),
      path: `${path}/no/such/place`,
    }).set(["198.51.100.1"], signal);
    await expect(set).rejects.toMatchObject({ code: "resolver-failed" });
    expect(await make().observe()).toBeUndefined();
  });

  it("that is a mount of its own is written in place", async () => {
    const dir = tempDir();
    const path = join(dir, "resolv.conf");
    writeFileSync(path, "");
    writeFileSync(join(dir, "mounted"), FORMER);
    const machine = await networkMachine(dir, { resolverPath: path }, `mount --bind ${dir}/mounted ${path}`);
    await machine.apply({ kind: "resolver", servers: ["198.51.100.1"] });
    expect((await machine.observe()).nameServers).toStrictEqual(["198.51.100.1"]);
    expect(readFileSync(join(dir, "mounted"), "utf8")).toContain("nameserver 198.51.100.1\n");
    const restarted = await machine.restart();
    await restarted.apply({ kind: "resolver", servers: undefined });
    expect(await restarted.observe()).not.toHaveProperty("nameServers");
    expect(readFileSync(join(dir, "mounted"), "utf8")).toBe(FORMER);
    expect(machine.sh(`ls ${dir}`)).not.toContain(".tmp");
  });
});

describe("systemd-resolved", () => {
  const ROUTES = `Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth1\t00000000\t0101A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
`;
  const requested = (...list: readonly string[]) => ({
    "/run/systemd/resolve/resolv.conf": list.map((server) => `nameserver ${server}\n`).join(""),
    "/proc/net/route": ROUTES,
  });

  it("is configured for the link of the default route, and reset", async () => {
    const { path, reported, make, text } = servers(requested("198.51.100.1", "192.0.2.1"));
    writeFileSync(path, "nameserver 127.0.0.53\n");
    expect(await make().observe()).toBeUndefined();
    await make().set(["198.51.100.1"], signal);
    expect(reported).toStrictEqual(["resolvectl dns eth0 198.51.100.1", "resolvectl domain eth0 ~."]);
    expect(text()).toBe("nameserver 127.0.0.53\n");
    expect(await make().observe()).toStrictEqual(["198.51.100.1"]);
    await make().set(["198.51.100.7"], signal);
    expect(await make().observe()).toStrictEqual(["198.51.100.1", "192.0.2.1"]);
    await make().set(undefined, signal);
    expect(reported.at(-1)).toBe("resolvectl revert eth0");
    expect(await make().observe()).toBeUndefined();
  });

  it("is recognized by the target of the file", async () => {
    const { path, reported, make } = servers(requested());
    symlinkSync("/run/systemd/resolve/stub-resolv.conf", path);
    await make().set(["198.51.100.1"], signal);
    expect(reported[0]).toBe("resolvectl dns eth0 198.51.100.1");
    expect(readlinkSync(path)).toBe("/run/systemd/resolve/stub-resolv.conf");
  });

  it("cannot be configured without a default route, or when it refuses", async () => {
    const without = servers({ "/proc/net/route": "" });
    writeFileSync(without.path, "nameserver 127.0.0.53\n");
    await expect(without.make().set(["198.51.100.1"], signal)).rejects.toMatchObject({ code: "resolver-failed" });
    const refusing = servers(requested(), () => "no link\n");
    writeFileSync(refusing.path, "nameserver 127.0.0.53\n");
    const expected = { code: "resolver-failed", message: "resolvectl: no link" };
    await expect(refusing.make().set(["198.51.100.1"], signal)).rejects.toMatchObject(expected);
  });

  it("is not called for a removed link", async () => {
    const gone = (args: readonly string[]) => (args[0] === "revert" ? 'Failed to resolve "eth0": No such device' : "");
    const { path, make } = servers(requested("198.51.100.1"), gone);
    writeFileSync(path, "nameserver 127.0.0.53\n");
    await make().set(["198.51.100.1"], signal);
    await make().set(undefined, signal);
    expect(await make().observe()).toBeUndefined();
  });
});
