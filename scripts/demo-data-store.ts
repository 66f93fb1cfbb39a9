// The demo of the data store: a control plane, a node, a file server and an object store that speaks S3; everything lies below .demo/d/.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Server } from "node:http";
import { join } from "node:path";
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import { exchange, type Answer } from "../test/support/control-plane/exchange.ts";
import { namedPrograms } from "../test/support/machine/named-programs.ts";
import { freePort } from "../test/support/machine/programs.ts";
import { startSwift, type SwiftServer } from "../test/support/data-store/swift.ts";
import { waitFor } from "../test/support/wait-for.ts";
import { BUCKET, dataStoreTour } from "./demo-data-store-tour.ts";
import { startFiles } from "./demo-files.ts";
import { tourSteps } from "./demo-steps.ts";

const DIR = ".demo/d";
const OWN_PID = `${DIR}/demo.pid`;
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];
const TOOLS = {
  "swift-ring-builder": "swift",
  "swift-proxy-server": "swift-proxy",
  "swift-account-server": "swift-account",
  "swift-container-server": "swift-container",
  "swift-object-server": "swift-object",
  memcached: "memcached",
  curl: "curl",
};
const PATIENCE_MS = 120_000;
const isCheck = process.argv.includes("--check");
const steps = tourSteps();
const ending: (() => Promise<unknown> | void)[] = [];
let isClosing = false;
const stopped = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
});

async function main(): Promise<void> {
  const missing = Object.entries(TOOLS).filter(([tool]) => spawnSync("which", [tool]).status !== 0);
  if (missing.length > 0)
    throw new Error(`apt-get install --no-install-recommends ${missing.map(([, name]) => name).join(" ")}`);
  requireAlone();
  rmSync(DIR, { recursive: true, force: true });
  mkdirSync(DIR, { recursive: true, mode: 0o700 });
  ending.push(() => rmSync(DIR, { recursive: true, force: true }));
  writeFileSync(OWN_PID, `${process.pid}\n`);
  console.log("demo: starting an object store, which takes a while");
  const swift = await startSwift(join(process.cwd(), DIR, "swift"));
  ending.push(() => swift.stop());
  await makeBucket(swift);
  console.log("demo: starting a file server, a control plane and a node");
  const filesPort = await freePort();
  const files = await startFiles(filesPort);
  ending.push(() => closed(files));
  const { url, uid } = await startNode(swift);
  const tour = dataStoreTour({ dir: DIR, url, uid, files: `http://127.0.0.1:${filesPort}`, swift });
  if (!isCheck) steps.show(tour, `A control plane (${url}) and a node are running.`);
  await (isCheck ? steps.check(tour) : stopped);
}

async function makeBucket({ endpoint, region, accessKeyId, secretAccessKey }: SwiftServer): Promise<void> {
  const credentials = { accessKeyId, secretAccessKey };
  const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: BUCKET }));
  client.destroy();
  writeFileSync(`${DIR}/s3.json`, JSON.stringify(credentials), { mode: 0o600 });
}

/** Starts the control plane and a node that may reach this machine and the bucket. */
async function startNode({ endpoint, region }: SwiftServer): Promise<{ readonly url: string; readonly uid: string }> {
  const programs = namedPrograms(DIR);
  ending.push(() => programs.end());
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const start = (name: string, args: readonly string[]): ReturnType<typeof programs.start> =>
    programs.start(name, [process.execPath, ...FLAGS, "dist/holdfast.mjs", name, ...args]);
  start("controller", ["--listen", `127.0.0.1:${port}`, "--data", `${DIR}/controller`]);
  const isUp = async (): Promise<boolean> => (await exchange(url, "GET", "/healthz", "")).status === 200;
  await waitFor("the control plane answers", isUp, PATIENCE_MS);
  const call = (path: string): Promise<Answer> =>
    exchange(url, "GET", path, readFileSync(`${DIR}/controller/admin.key`, "utf8").trim());
  const s3 = { bucket: BUCKET, endpoint, region, pathStyle: true, credentials: join(process.cwd(), DIR, "s3.json") };
  const dataStore = { allowAddresses: ["127.0.0.0/8"], reservePercent: 0, s3: [s3] };
  writeFileSync(`${DIR}/agent.json`, JSON.stringify({ dataStore }, undefined, 2));
  // One that is killed is started again, as a service manager would.
  const startAgent = (): void => {
    const places = ["--state", `${DIR}/node`, "--run", `${DIR}/run`, "--config", `${DIR}/agent.json`];
    start("agent", places).once("exit", (_, signal) => {
      if (signal === "SIGKILL" && !isClosing) startAgent();
    });
  };
  startAgent();
  writeFileSync(`${DIR}/license`, String((await call("/node/license?name=store&type=Node")).body), { mode: 0o600 });
  await waitFor("the agent answers", () => existsSync(`${DIR}/run/admin.sock`), PATIENCE_MS);
  const register = ["register", `${DIR}/license`, "--state", `${DIR}/node`, "--run", `${DIR}/run`];
  const { status, stderr } = spawnSync(process.execPath, [...FLAGS, "dist/holdfast.mjs", ...register], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`the node did not register: ${stderr}`);
  const online = async (): Promise<string | undefined> => {
    const [node] = (await call("/node?projection[]=uid&projection[]=online")).body as {
      uid: string;
      online: boolean;
    }[];
    return node?.online === true ? node.uid : undefined;
  };
  return { url, uid: await waitFor("the node is online", online, PATIENCE_MS) };
}

/** Refuses to take the ground from under a demo that runs. */
function requireAlone(): void {
  const pid = existsSync(OWN_PID) ? readFileSync(OWN_PID, "utf8").trim() : "";
  const path = `/proc/${pid}/cmdline`;
  const isRunning = /^\d+$/.test(pid) && existsSync(path) && readFileSync(path, "utf8").includes("demo-data-store");
  if (isRunning) throw new Error(`another demo runs in this folder, as process ${pid}; end it first`);
}

async function closed(server: Server): Promise<void> {
  const done = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await done;
}

try {
  await Promise.race([main(), stopped]);
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  isClosing = true;
  steps.end();
  for (const end of ending.reverse()) await end();
}
process.exit();
