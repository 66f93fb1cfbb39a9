import { spawn } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { waitFor } from "../../support/wait-for.ts";

const support = (name: string): string => JSON.stringify(new URL(`../../support/${name}`, import.meta.url).href);

const SCRIPT = `
  import { startEngine } from ${support("containers/docker-engine.ts")};
  import { makeImage } from ${support("containers/images.ts")};
  const engine = await startEngine();
  await makeImage(engine, { tag: "busybox:1", command: ["sleep", "1000"] });
  await engine.call("POST", "/containers/create?name=one", { Image: "busybox:1" });
  await engine.call("POST", "/containers/one/start");
  const { body } = await engine.call("GET", "/containers/one/json");
  console.log(JSON.stringify([engine.dir, engine.pid, body.State.Pid, body.Id]));
  setInterval(() => undefined, 1000);
`;

test("a test that is killed leaves no engine, container, file or control group", async () => {
  const child = spawn(process.execPath, ["--input-type=module", "-e", SCRIPT], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (piece: Buffer) => (output += piece.toString()));
  const [dir, enginePid, containerPid, id] = await waitFor("the container runs", () =>
    output.endsWith("\n") ? (JSON.parse(output) as [string, number, number, string]) : undefined,
  );
  const runs = (pid: number): boolean =>
    existsSync(`/proc/${pid}/stat`) && !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  expect([runs(enginePid), runs(containerPid), existsSync(dir)]).toEqual([true, true, true]);
  child.kill("SIGKILL");
  await waitFor("all has ended", () => !runs(enginePid) && !runs(containerPid) && !existsSync(dir));
  expect(globSync(`/sys/fs/cgroup/{,*/}hf-engine-*/${id}`)).toEqual([]);
});
