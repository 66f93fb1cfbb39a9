// The demo itself: everything it makes lies below .demo/, and paths stay relative so that sockets have short names.
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";

const DIR = ".demo";
const HOLDFAST = `scripts/holdfast`;
const RUN = `--run ${DIR}/run`;
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];
const isCheck = process.argv.includes("--check");
const children: ChildProcess[] = [];
const OWN_PID = `${DIR}/demo.pid`;
/** What the demo makes; everything else below .demo/ is somebody's own. */
const MADE = ["controller", "node", "run", "license", "controller.log", "agent.log"];
const stopped = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
});

interface Stop {
  readonly title: string;
  readonly command: string;
  /** What the answer must contain. */
  readonly expect: RegExp;
}

async function main(): Promise<void> {
  mkdirSync(DIR, { recursive: true, mode: 0o700 });
  requireAlone();
  step("making room", () => endLeftovers());
  writeFileSync(OWN_PID, `${process.pid}\n`);
  const port = await freePort(8480);
  const url = `http://127.0.0.1:${port}`;
  start("controller", [
    "controller",
    "--listen",
    `127.0.0.1:${port}`,
    "--data",
    `${DIR}/controller`,
    "--run",
    `${DIR}/run`,
  ]);
  await until("the control plane answers", async () => (await fetch(`${url}/healthz`)).ok);
  const key = readFileSync(`${DIR}/controller/admin.key`, "utf8").trim();
  const license = await fetch(`${url}/node/license?name=demo&type=Node`, { headers: { authorization: key } });
  if (!license.ok) throw new Error(`no license: HTTP ${license.status} ${await license.text()}`);
  writeFileSync(`${DIR}/license`, await license.text(), { mode: 0o600 });
  start("agent", ["agent", "--state", `${DIR}/node`, "--run", `${DIR}/run`]);
  await until("the agent answers", () => existsSync(`${DIR}/run/admin.sock`));
  shell(`${HOLDFAST} register ${DIR}/license --state ${DIR}/node ${RUN}`);
  const uid = await until("the node is online and has reported itself", async () => {
    const query = "projection[]=online&projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory";
    const nodes = (await (await fetch(`${url}/node?${query}`, { headers: { authorization: key } })).json()) as {
      uid: string;
      online: boolean;
      shadow: { reported?: { memory?: number } };
    }[];
    return nodes.find((node) => node.online && node.shadow.reported?.memory !== undefined)?.uid;
  });
  const tour = tourOf(url, port, uid);
  if (isCheck) check(tour);
  else await show(tour);
}

function tourOf(url: string, port: number, uid: string): readonly Stop[] {
  const hasPing = spawnSync("sh", ["-c", "command -v ping"]).status === 0;
  const auth = `-H "Authorization: $(cat ${DIR}/controller/admin.key)"`;
  const json = `-H 'content-type: application/json'`;
  return [
    {
      title: "every node, as the platform's API lists it",
      command: `curl -s ${auth} ${url}/node`,
      expect: /"online":true/,
    },
    {
      title: "just the fields you ask for",
      command: `curl -sg ${auth} '${url}/node?projection[]=name&projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory'`,
      expect: /"shadow":\{"reported":\{"memory":\d+\}\}/,
    },
    {
      title: "run a diagnosis on the node and wait for its answer",
      command: `curl -s ${auth} ${json} -X POST '${url}/node/${uid}/trigger/tg-nc?wait=1' -d '{"host":"127.0.0.1","port":${port}}'`,
      expect: /"exitCode":"0"/,
    },
    hasPing
      ? {
          title: "ping from the node",
          command: `curl -s ${auth} ${json} -X POST '${url}/node/${uid}/trigger/tg-ping?wait=1' -d '{"host":"127.0.0.1"}'`,
          expect: /4 received/,
        }
      : {
          title: "ping from the node (ping is not installed on this machine, and the node says so)",
          command: `curl -s ${auth} ${json} -X POST '${url}/node/${uid}/trigger/tg-ping?wait=1' -d '{"host":"127.0.0.1"}'`,
          expect: /"tool-missing"/,
        },
    {
      title: "tag it; the node knows within a moment",
      command: `curl -s ${auth} ${json} -X PUT ${url}/node/${uid}/tag/site -d '{"value":"here"}'`,
      expect: /"site":"here"/,
    },
    { title: "what has happened", command: `curl -s ${auth} '${url}/v2/event?limit=5'`, expect: /"Node Connect"/ },
    { title: "nothing without a key", command: `curl -s ${url}/node`, expect: /unauthori[sz]ed|Authorization/i },
    { title: "the node about itself", command: `${HOLDFAST} status ${RUN}`, expect: /online/ },
    {
      title: "its health; not everything is known in the first minute",
      command: `${HOLDFAST} health ${RUN}`,
      expect: /control-plane/,
    },
    {
      title: "the same diagnosis from the node's own command line",
      command: `${HOLDFAST} trigger tg-nc '{"host":"127.0.0.1","port":${port}}' ${RUN}`,
      expect: /succeeded/,
    },
    { title: "its log", command: `${HOLDFAST} logs -n 3 ${RUN}`, expect: /./ },
  ];
}

function check(tour: readonly Stop[]): void {
  for (const { title, command, expect } of tour) {
    console.log(`\n# ${title}\n$ ${command}`);
    const answer = shell(command);
    console.log(answer.length > 1500 ? `${answer.slice(0, 1500)}…` : answer.trimEnd());
    if (!expect.test(answer)) throw new Error(`«${title}» did not answer with ${String(expect)}`);
  }
  console.log("\ndemo: every step worked");
}

async function show(tour: readonly Stop[]): Promise<void> {
  console.log("\nA control plane and a node are running. Try these in another terminal, from this folder:\n");
  for (const { title, command } of tour) console.log(`  # ${title}\n  ${command}\n`);
  console.log("The node's status follows; Ctrl-C stops everything.\n");
  const watch = spawn(HOLDFAST, ["status", "--watch", "--run", `${DIR}/run`], { stdio: "inherit" });
  children.push(watch);
  await Promise.race([new Promise((resolve) => watch.once("exit", resolve)), stopped]);
}

function start(name: string, args: readonly string[]): void {
  const out = openSync(`${DIR}/${name}.log`, "a", 0o600);
  // In a group of its own, so that the terminal's Ctrl-C reaches it through us alone.
  const child = spawn(process.execPath, [...FLAGS, "dist/holdfast.mjs", ...args], {
    detached: true,
    stdio: ["ignore", out, out],
  });
  child.once("exit", (code) => {
    if (!children.includes(child)) return;
    console.error(`demo: the ${name} ended by itself (${code}); see ${DIR}/${name}.log`);
    process.exitCode = 1;
  });
  children.push(child);
}

/** Runs one command line and gives what it printed; a health that is degraded is still an answer. */
function shell(command: string): string {
  const { status, stdout, stderr } = spawnSync("bash", ["-c", command], { encoding: "utf8", timeout: 60_000 });
  const isAnswer = status === 0 || (status === 5 && command.includes(" health "));
  if (!isAnswer) throw new Error(`exit status ${status}: ${command}\n${stdout}${stderr}`);
  return stdout;
}

async function until<T>(what: string, probe: () => T | Promise<T>): Promise<Exclude<T, undefined | false>> {
  const end = Date.now() + 30_000;
  let last: unknown;
  while (Date.now() < end) {
    try {
      const value = await probe();
      if (value !== undefined && value !== false) {
        console.log(`demo: ${what}`);
        return value as Exclude<T, undefined | false>;
      }
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`waited in vain until ${what}; see ${DIR}/*.log`, { cause: last });
}

async function freePort(wanted: number): Promise<number> {
  for (const port of [wanted, 0]) {
    const server = createServer();
    const found = await new Promise<number | undefined>((resolve) => {
      server.once("error", () => resolve(undefined));
      server.listen(port, "127.0.0.1", () => {
        const address = server.address();
        resolve(typeof address === "object" && address !== null ? address.port : undefined);
      });
    });
    await new Promise((resolve) => server.close(resolve));
    if (found !== undefined) return found;
  }
  throw new Error("no free port on 127.0.0.1");
}

/** Ends what an interrupted demo left running, by the command lines of its pid files' processes. */
function endLeftovers(): void {
  for (const path of [`${DIR}/run/agent.pid`, `${DIR}/run/controller.pid`]) {
    if (!existsSync(path)) continue;
    const pid = readFileSync(path, "utf8").trim();
    if (/^\d+$/.test(pid) && commandLineOf(pid).includes("dist/holdfast.mjs")) process.kill(Number(pid), "SIGTERM");
  }
  for (const name of MADE) rmSync(`${DIR}/${name}`, { recursive: true, force: true });
}

/** Refuses to take the ground from under a demo that runs. */
function requireAlone(): void {
  const pid = existsSync(OWN_PID) ? readFileSync(OWN_PID, "utf8").trim() : "";
  const isRunning = /^\d+$/.test(pid) && commandLineOf(pid).includes("scripts/demo.ts");
  if (isRunning) throw new Error(`another demo runs in this folder, as process ${pid}; end it first`);
}

function commandLineOf(pid: string): string {
  const path = `/proc/${pid}/cmdline`;
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

function step(what: string, work: () => void): void {
  console.log(`demo: ${what}`);
  work();
}

async function stopAll(): Promise<void> {
  for (const child of children.splice(0).reverse()) {
    if (child.exitCode !== null) continue;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(timer);
  }
}

try {
  await Promise.race([main(), stopped]);
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  await stopAll();
  if (existsSync(OWN_PID) && readFileSync(OWN_PID, "utf8").trim() === String(process.pid)) rmSync(OWN_PID);
  process.exit();
}
