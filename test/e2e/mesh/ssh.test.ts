import { createHash, randomBytes } from "node:crypto";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startAside } from "../../../scripts/labs/programs.ts";
import { meshStage } from "../../support/overlay/mesh-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const SSHD_PORT = 2222;
const PORT = 7022;
const stage = meshStage();
const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

test("ssh and sftp work through a connector to a service on another node", async () => {
  const { lab } = stage;
  const dir = join(lab.dir, "ssh");
  mkdirSync(dir, { mode: 0o700 });
  // sshd(8) refuses to start without it.
  mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
  const at = (name: string): string => join(dir, name);
  for (const key of ["host", "user"]) {
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", at(key)]);
  }
  writeFileSync(at("authorized"), readFileSync(at("user.pub")), { mode: 0o600 });
  writeFileSync(at("known"), `[127.0.0.1]:${PORT} ${readFileSync(at("host.pub"), "utf8")}`);
  const settings = {
    ListenAddress: `127.0.0.1:${SSHD_PORT}`,
    HostKey: at("host"),
    AuthorizedKeysFile: at("authorized"),
    PidFile: at("pid"),
    PermitRootLogin: "prohibit-password",
    StrictModes: "no",
    UsePAM: "no",
    Subsystem: "sftp internal-sftp",
  };
  writeFileSync(
    at("sshd_config"),
    Object.entries(settings)
      .map(([name, value]) => `${name} ${value}\n`)
      .join(""),
  );
  const onB = lab.network.on("b");
  startAside(onB, ["/usr/sbin/sshd", "-D", "-e", "-f", at("sshd_config")], at("log"));
  await waitFor("sshd listens", () =>
    execFileSync(onB[0] ?? "", [...onB.slice(1), "ss", "-ltnH"], { encoding: "utf8" }).includes(`:${SSHD_PORT}`),
  );
  await stage.service("b", { name: "ssh", protocol: "tcp", host: "127.0.0.1", port: SSHD_PORT });
  await stage.connector("a", { node: "b", service: "ssh", port: PORT });

  const options = Object.entries({
    BatchMode: "yes",
    IdentityFile: at("user"),
    IdentitiesOnly: "yes",
    UserKnownHostsFile: at("known"),
    StrictHostKeyChecking: "yes",
    ConnectTimeout: "30",
  }).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  const onA = (command: string, args: readonly string[], input = ""): string => {
    const [file = "", ...rest] = lab.network.on("a");
    return execFileSync(file, [...rest, command, "-F", "none", ...options, ...args], {
      input,
      encoding: "utf8",
      timeout: 120_000,
      maxBuffer: 1 << 24,
    });
  };
  const ssh = (line: string, input = ""): string => onA("ssh", ["-p", String(PORT), "root@127.0.0.1", line], input);
  await waitFor("ssh runs a command there", () => {
    try {
      return ssh("ip netns identify").trim() === onB.at(-1);
    } catch {
      return false;
    }
  });
  // The exit status and both directions, beyond any buffer on the path.
  expect(() => ssh("exit 3")).toThrow(expect.objectContaining({ status: 3 }) as Error);
  const text = randomBytes(3 << 20).toString("base64");
  expect(digest(Buffer.from(ssh("cat", text)))).toBe(digest(Buffer.from(text)));

  const file = randomBytes(8 << 20);
  writeFileSync(at("sent"), file);
  onA(
    "sftp",
    ["-b", "-", "-P", String(PORT), "root@127.0.0.1"],
    `put ${at("sent")} ${at("there")}\nget ${at("there")} ${at("back")}\n`,
  );
  expect([digest(readFileSync(at("there"))), digest(readFileSync(at("back")))]).toEqual([digest(file), digest(file)]);
});
