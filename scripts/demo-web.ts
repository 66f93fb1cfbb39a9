// The web server that the demo's connector leads to: a page, and a large file with its checksum.
import { createCipheriv, createHash } from "node:crypto";
import { createServer, type Server } from "node:http";

const LARGE_BYTES = 64 * 1024 * 1024;

/** Serves on 127.0.0.1 until it is closed. */
export function startWeb(port: number): Promise<Server> {
  // Reproducible, and no two blocks of it alike.
  const large = createCipheriv("aes-128-ctr", Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(LARGE_BYTES));
  const checksum = createHash("sha256").update(large).digest("hex");
  const server = createServer((request, response) => {
    switch (request.url) {
      case "/":
        return response.end("Hello from behind a connector\n");
      case "/large":
        return response.end(large);
      case "/large.sha256":
        return response.end(`${checksum}  the file as the server has it\n`);
      default:
        return response.writeHead(404).end();
    }
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}
