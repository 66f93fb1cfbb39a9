import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { aTftpd, aVsftpd } from "../../support/data-store/file-servers.ts";
import { flowsOf, meshStage } from "../../support/overlay/mesh-stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const run = promisify(execFile);
const stage = meshStage();

test("downloads files of FTP and TFTP servers from another site through a gateway", async () => {
  const { lab } = stage;
  const dir = tempDir();
  const at = lab.network.on("b");
  const [files, boot] = [await aVsftpd(dir, at), await aTftpd(dir, at)];
  writeFileSync(join(files.root, "upload/note"), "read me");
  writeFileSync(join(boot.root, "loader"), "boot me");
  const host = "127.0.0.1";
  await stage.service("b", { name: "files", protocol: "ftp", host, port: files.port });
  await stage.service("b", { name: "boot", protocol: "tftp", host, port: boot.port });
  await stage.connector("a", { node: "b", service: "files", port: 7101, protocol: "ftp" });
  await stage.connector("a", { node: "b", service: "boot", port: 7102, protocol: "tftp" });
  const fetch = async (url: string): Promise<string> => {
    const [command, ...args] = [...lab.network.on("a"), "curl", "-sS", "--max-time", "10", "--no-ftp-skip-pasv-ip"];
    const { stdout } = await run(command, [...args, url]);
    return stdout;
  };
  expect(await waitFor("the note", () => fetch("ftp://127.0.0.1:7101/upload/note"))).toBe("read me");
  expect(await waitFor("the loader", () => fetch("tftp://127.0.0.1:7102/loader"))).toBe("boot me");
  const isNote = ({ destBytes }: Readonly<Record<string, unknown>>): boolean => destBytes === "read me".length;
  for (const node of ["a", "b"]) {
    const record = await waitFor(`the record of ${node}`, async () => (await flowsOf(lab, node)).find(isNote));
    expect(record).toMatchObject({ protocol: "TCP", meta: { service: "files" } });
  }
});
