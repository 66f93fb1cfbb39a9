import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../../support/control-plane/postgres.ts";
import { freePort, startController, startProgram } from "../../support/machine/programs.ts";
import { TESTS_ALL } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const ADDRESS = "10.219.7.1";
const OTHER_ADDRESS = "10.219.7.2";
/** The guide promises a minute. */
const LIMIT_MS = 60_000;

const sh = (line: string): string => execFileSync("bash", ["--norc", "-c", line], { encoding: "utf8" });

/** Makes another machine on a link to this one, until the test ends, and returns what runs a command there. */
async function otherMachine(): Promise<{ readonly within: readonly string[]; readonly unplug: () => void }> {
  const holder = spawn("unshare", ["-n", "sh", "-c", "echo up; exec sleep 1800"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  // The link goes with its other end.
  onTestFinished(() => void holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  const within = ["nsenter", "-t", String(holder.pid), "-n"];
  const link = `hfu${process.pid}`;
  sh(`ip link add ${link} type veth peer name eth0 netns ${holder.pid ?? 0}`);
  sh(`ip addr add ${ADDRESS}/24 dev ${link} && ip link set ${link} up`);
  sh(`${within.join(" ")} bash -c 'ip link set lo up; ip addr add ${OTHER_ADDRESS}/24 dev eth0; ip link set eth0 up'`);
  return { within, unplug: () => void sh(`${within.join(" ")} ip link set eth0 down`) };
}

test.runIf(TESTS_ALL)(
  "a controller may use a PostgreSQL within a minute after the machine of the first has become unreachable",
  async () => {
    const { within, unplug } = await otherMachine();
    const server = await startPostgres({
      access: [`host all all ${ADDRESS}/24 trust`],
      settings: [`listen_addresses='127.0.0.1,${ADDRESS}'`],
    });
    onTestFinished(() => server.remove());
    const { database } = (await server.createDatabase()).address;
    const store = (host: string): readonly string[] => [
      "--store",
      `postgres://holdfast@${host}:${server.port}/${database}?sslmode=disable`,
    ];
    const dir = tempDir();
    const args = ["controller", "--listen", "127.0.0.1:8480", "--data", join(dir, "controller"), ...store(ADDRESS)];
    const first = startProgram(args, join(dir, "first.log"), { within });
    const held = (): Promise<readonly unknown[]> =>
      server.query(database, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted");
    await waitFor("the first holds the lock", async () => (await held()).length > 0);
    await waitFor("it answers", () => {
      if (first.process.exitCode !== null) throw new Error(first.log());
      return sh(`${within.join(" ")} curl -s http://127.0.0.1:8480/healthz || true`) !== "";
    });

    unplug();
    await waitFor("the lock is free", async () => (await held()).length === 0, LIMIT_MS);
    const second = await startController(dir, await freePort(), store("127.0.0.1"));
    expect(await second.call("GET", "/node")).toEqual({ status: 200, body: [] });
    expect(first.process.exitCode).toBe(null);
  },
);
