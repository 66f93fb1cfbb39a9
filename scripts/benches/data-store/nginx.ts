// The web server of this bench: Debian's nginx on 127.0.0.1 with a configuration of its own, over HTTP and TLS.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testCertificate } from "../../../test/support/certificates.ts";
import { freePort, startTool, until, type Running } from "../programs.ts";

export interface Nginx extends Running {
  readonly http: string;
  readonly https: string;
  /** File of the CA that signed its certificate. */
  readonly caFile: string;
}

/** Serves the files of a directory; one worker, `sendfile`. */
export async function startNginx(dir: string, files: string): Promise<Nginx> {
  mkdirSync(dir);
  const [port, tlsPort] = [await freePort(), await freePort()];
  const authority = await testCertificate({ hosts: [], isAuthority: true });
  const server = await testCertificate({ hosts: ["127.0.0.1"], issuer: authority });
  const caFile = join(dir, "ca.pem");
  writeFileSync(caFile, authority.cert);
  writeFileSync(join(dir, "cert.pem"), server.cert);
  writeFileSync(join(dir, "key.pem"), server.key, { mode: 0o600 });
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `  ${name}_temp_path ${join(dir, name)};`,
  );
  const lines = [
    "daemon off;",
    ...(process.getuid?.() === 0 ? ["user root;"] : []),
    "worker_processes 1;",
    `pid ${join(dir, "nginx.pid")};`,
    "events { worker_connections 256; }",
    "http {",
    "  access_log off;",
    "  sendfile on;",
    ...temporary,
    "  server {",
    `    listen 127.0.0.1:${port};`,
    `    listen 127.0.0.1:${tlsPort} ssl;`,
    `    ssl_certificate ${join(dir, "cert.pem")};`,
    `    ssl_certificate_key ${join(dir, "key.pem")};`,
    `    root ${files};`,
    "  }",
    "}",
  ];
  const config = join(dir, "nginx.conf");
  writeFileSync(config, `${lines.join("\n")}\n`);
  const log = join(dir, "nginx.log");
  const program = startTool("nginx", ["-e", log, "-c", config], log);
  const http = `http://127.0.0.1:${port}`;
  await until("nginx answers", async () => (await fetch(`${http}/none`)).status === 404);
  return { ...program, http, https: `https://127.0.0.1:${tlsPort}`, caFile };
}
