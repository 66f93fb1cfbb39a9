import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readPrometheusText } from "../../support/prometheus-text.ts";
import { freePort, holdfast, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { untilOnline } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";

test("metrics are served on loopback on request, and elsewhere only with permission", async () => {
  const dir = tempDir();
  const port = await freePort();
  const config = (listen: string): string => {
    const path = join(dir, "agent.json");
    writeFileSync(path, JSON.stringify({ metrics: { listen } }));
    return path;
  };
  const where = ["--state", join(dir, "other/state"), "--run", join(dir, "other/run")];
  const refused = await holdfast(["agent", "--config", config(`0.0.0.0:${port}`), ...where]);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain("metrics.listen: 0.0.0.0 is not this machine's alone");

  const controller = await startController(dir, await freePort());
  const agent = await startAgent(join(dir, "node"), { more: ["--config", config(`127.0.0.1:${port}`)] });
  await registerNode(controller, agent, "edge");
  await untilOnline(agent);
  const text = execFileSync("curl", ["-sSf", `http://127.0.0.1:${port}/metrics`], { encoding: "utf8" });
  const families = readPrometheusText(text);
  expect([...families.keys()].every((name) => name.startsWith("holdfast_"))).toBe(true);
  const online = families.get("holdfast_session_state")?.samples.find(({ labels }) => labels["state"] === "online");
  expect(online?.value).toBe(1);
  const listening = execFileSync("ss", ["-Hltn", `sport = :${port}`], { encoding: "utf8" })
    .trim()
    .split("\n");
  expect(listening).toHaveLength(1);
  expect(listening[0]).toContain(`127.0.0.1:${port}`);
});
