import { execFileSync, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { freePort } from "../machine/programs.ts";
import { waitFor } from "../wait-for.ts";

export interface FileServer {
  readonly port: number;
  /** The served directory; clients may write into its `upload`. */
  readonly root: string;
}

const VSFTPD = "/usr/sbin/vsftpd";

/** A real FTP server for anonymous users on 127.0.0.1, below `dir`, run by the command `within`; it ends with the test. */
export async function aVsftpd(dir: string, within: readonly string[] = []): Promise<FileServer> {
  if (!existsSync(VSFTPD)) throw new Error("vsftpd is missing: apt-get install vsftpd");
  const port = await freePort();
  const root = join(dir, "ftp");
  const config = join(dir, "vsftpd.conf");
  mkdirSync(join(root, "upload"), { recursive: true });
  const settings = {
    listen: "YES",
    listen_address: "127.0.0.1",
    listen_port: String(port),
    background: "NO",
    run_as_launching_user: "YES",
    secure_chroot_dir: root,
    seccomp_sandbox: "NO",
    anonymous_enable: "YES",
    no_anon_password: "YES",
    anon_root: root,
    write_enable: "YES",
    anon_upload_enable: "YES",
    anon_umask: "022",
    connect_from_port_20: "NO",
    // An address that clients must not use.
    pasv_address: "192.0.2.1",
  };
  writeFileSync(
    config,
    Object.entries(settings)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(""),
  );
  // It refuses a root that its users could write to.
  chmodSync(root, 0o555);
  const [command, ...args] = [...within, VSFTPD, config];
  const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit"] });
  onTestFinished(() => {
    child.kill("SIGKILL");
    chmodSync(root, 0o755);
  });
  await waitFor("vsftpd listens", () => listens("tcp", port, within));
  return { port, root };
}

const TFTPD = "/usr/sbin/in.tftpd";

/** A real TFTP server on 127.0.0.1, below `dir`, where clients may write too; it ends with the test. */
export async function aTftpd(dir: string, within: readonly string[] = []): Promise<FileServer> {
  if (!existsSync(TFTPD)) throw new Error("in.tftpd is missing: apt-get install tftpd-hpa");
  const port = await freePort();
  const root = join(dir, "tftp");
  mkdirSync(root, { recursive: true });
  const where = ["--address", `127.0.0.1:${port}`, "--user", userInfo().username];
  const [command, ...args] = [...within, TFTPD, "--foreground", ...where, "--secure", "--create", root];
  const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  await waitFor("in.tftpd listens", () => listens("udp", port, within));
  return { port, root };
}

/** Reports whether a port of 127.0.0.1 has a socket, in the network where commands run (proc_net(5)). */
function listens(protocol: "tcp" | "udp", port: number, within: readonly string[]): boolean {
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, "0")} `;
  const [command, ...args] = [...within, "cat", `/proc/net/${protocol}`];
  return execFileSync(command, args, { encoding: "utf8" }).includes(local);
}
