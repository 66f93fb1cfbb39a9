import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { registerVerb } from "../../../src/cli/verbs/register.ts";
import { InputError, SessionError } from "../../../src/errors.ts";
import { someCall } from "../../support/fake-call.ts";
import { identity } from "../../support/fake-local-provider.ts";
import { someLicense } from "../../support/control-plane/license.ts";
import { someDirectories, startLocalAgent, type Directories } from "../../support/local-agent.ts";
import { holdfast } from "../../support/run-holdfast.ts";
import { runVerb } from "../../support/run-verb.ts";

const license = someLicense();

function licenseFile({ root }: Directories, text = `\n${license} \n`): string {
  const path = join(root, "license.jwt");
  writeFileSync(path, text);
  return path;
}

describe("holdfast register", () => {
  it("asks the running agent, with the license trimmed", async () => {
    await using agent = await startLocalAgent();
    const { code, stdout } = await holdfast(["register", licenseFile(agent), "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stdout).toBe(`registered edge-1.example.net (Agent, ${identity.uid}): the running agent connects now\n`);
    expect(agent.provider.requested).toEqual([{ license }]);
  });

  it("reads the license from standard input and prints the documented JSON", async () => {
    await using agent = await startLocalAgent();
    const { code, stdout } = await holdfast(["register", "-", "--json", "--run", agent.runDir], {
      input: `${license}\n`,
    });
    expect(code).toBe(0);
    expect(registerVerb.output?.parse(JSON.parse(stdout))).toEqual({ schema: 1, node: identity, by: "agent" });
  });

  it("prints the agent's reason when it refuses", async () => {
    await using agent = await startLocalAgent();
    agent.provider.thrown = new SessionError("license-reused", "the license was used by another node");
    const { code, stdout, stderr } = await runVerb(["register", licenseFile(agent), "--json", "--run", agent.runDir]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: "holdfast: the license was used by another node\n" });
    expect(JSON.parse(stdout)).toEqual({
      error: { code: "license-reused", message: "the license was used by another node" },
    });
  });

  it("prints how to reset a registered node, for the given directories", async () => {
    await using agent = await startLocalAgent();
    agent.provider.thrown = new InputError("already-registered", "this node is edge-1");
    const { code, stderr } = await runVerb(["register", licenseFile(agent), "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toBe(`holdfast: this node is edge-1: run 'holdfast reset --run ${agent.runDir}'\n`);
  });

  it.each([
    ["wrong", "a.b", "three parts"],
    ["empty", "", "it is empty"],
    ["binary", Buffer.from([0xff, 0xfe]).toString("latin1"), "license"],
    ["far too long", "x".repeat(70_000), "larger than 65536 bytes"],
  ])("refuses a license that is %s without any request", async (_what, text, message) => {
    await using agent = await startLocalAgent();
    const { code, stderr } = await runVerb(["register", licenseFile(agent, text), "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain(message);
    expect(agent.provider.requested).toEqual([]);
  });

  it.each([
    ["nowhere.jwt", "nowhere.jwt does not exist"],
    [".", "cannot read"],
  ])("names the unreadable file: %s", async (name, message) => {
    await using dirs = await someDirectories();
    const { code, stderr } = await runVerb(["register", join(dirs.root, name), "--run", dirs.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain(message);
  });

  it("needs a license", async () => {
    const { code, stderr } = await runVerb(["register"]);
    expect(code).toBe(2);
    expect(stderr).toContain("give <license>, --activate, --token or AUTH_TOKEN");
  });
});

describe("registering without a license", () => {
  const pending = { state: "pending", key: "A".repeat(43), expiresInSeconds: 900, pollSeconds: 1 } as const;

  it("prints the code and each one that replaces it, and registers with the resulting license", async () => {
    await using agent = await startLocalAgent();
    agent.provider.steps.push(
      { ...pending, code: "K7QM2X" },
      { ...pending, code: "PZ94HT" },
      { state: "approved", license },
    );
    const url = "https://cp.example.net";
    const { code, stdout, stderr } = await runVerb(["register", "--activate", `${url}/`, "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(stderr).toContain("Activation code:   K7Q M2X");
    expect(stderr).toContain("Activation code:   PZ9 4HT");
    expect(stderr).toContain(pending.key);
    expect(stdout).toContain("registered edge-1.example.net");
    expect(agent.provider.requested.at(0)).toEqual({ request: { url, pins: [] } });
    expect(agent.provider.requested.at(-1)).toEqual({ license });
  });

  it("reads an agent token from an option, from standard input or from the environment", async () => {
    await using agent = await startLocalAgent();
    const registers = async (args: readonly string[], options: Parameters<typeof holdfast>[1]): Promise<unknown> => {
      agent.provider.steps.push({ state: "approved", license });
      const { code } = await holdfast(["register", ...args, "--run", agent.runDir], options);
      expect(code).toBe(0);
      return agent.provider.requested.at(-2);
    };
    expect(await registers(["--token", "hf-agent-a"], {})).toEqual({ request: { token: "hf-agent-a" } });
    expect(await registers(["--token", "-"], { input: "hf-agent-b\n" })).toEqual({ request: { token: "hf-agent-b" } });
    const env = { AUTH_TOKEN: "hf-agent-c" };
    expect(await registers([], { env })).toEqual({ request: { token: "hf-agent-c" } });
    // A license file precedes the environment.
    const { code } = await holdfast(["register", licenseFile(agent), "--run", agent.runDir], { env });
    expect(code).toBe(0);
    expect(agent.provider.requested.at(-1)).toEqual({ license });
  });

  it.each([
    [["--activate", "cp.example.net"], "must be an origin"],
    [["--activate", "https://cp.example.net", "--pin", "short"], "SHA-256 as base64url"],
    [["--activate", "https://cp.example.net", "--token", "x"], "more than one is given"],
    [["--pin", "x"], "--pin is given without --activate"],
  ])("refuses %j as wrong usage", async (args, message) => {
    const { code, stderr } = await runVerb(["register", ...args]);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });
});

describe("registering without an agent", () => {
  it("is done by the command itself, on the state directory", async () => {
    await using dirs = await someDirectories();
    const requested: unknown[] = [];
    const register =
      async (): Promise<(stateDir: string, license: string) => Promise<typeof identity>> => async (stateDir, text) => {
        requested.push([stateDir, text]);
        return identity;
      };
    const { call, shown } = someCall(dirs, { positionals: [licenseFile(dirs)], offline: { register } });
    expect(await registerVerb.run(call)).toBe("ok");
    expect(requested).toEqual([[dirs.stateDir, license]]);
    expect(shown.join("")).toContain(
      `start the node with 'holdfast agent --state ${dirs.stateDir} --run ${dirs.runDir}'`,
    );
  });

  it("is not done while an agent runs, whatever it answers", async () => {
    await using agent = await startLocalAgent();
    agent.provider.thrown = new SessionError("offline", "the control plane does not answer");
    const register = (): Promise<never> => Promise.reject(new Error("must not be asked"));
    const { call } = someCall(agent, { positionals: [licenseFile(agent)], offline: { register } });
    await expect(registerVerb.run(call)).rejects.toMatchObject({ code: "offline" });
  });
});

describe("registering without an agent and without privileges", () => {
  it("exits 3", async () => {
    await using dirs = await someDirectories();
    const { call } = someCall(dirs, { positionals: [licenseFile(dirs)] });
    await expect(registerVerb.run(call)).rejects.toMatchObject({ code: "agent-unreachable" });
  });
});
