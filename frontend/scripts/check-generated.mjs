// Fails when src/api/schema.d.ts is not what docs/openapi.yaml generates.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const committed = "src/api/schema.d.ts";
const folder = mkdtempSync(join(tmpdir(), "concertina-schema-"));
const fresh = join(folder, "schema.d.ts");
try {
  execFileSync("npx", ["openapi-typescript", "../docs/openapi.yaml", "-o", fresh], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (readFileSync(fresh, "utf8") !== readFileSync(committed, "utf8")) {
    console.error(`${committed} differs from docs/openapi.yaml: run \`npm run generate\`.`);
    process.exitCode = 1;
  } else {
    console.log(`${committed} agrees with docs/openapi.yaml.`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
