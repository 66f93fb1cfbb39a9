// A captive portal: completes TLS with a certificate of its own and asks clients to log in.
import { createServer } from "node:https";
import { testCertificate } from "../certificates.ts";

const { cert, key } = await testCertificate({ hosts: ["portal.example"] });
createServer({ cert, key }, (_, response) => {
  response.writeHead(200, { "content-type": "text/html" }).end("<html><body>Please log in</body></html>");
}).listen(Number(process.argv[2]), () => console.log("ready"));
