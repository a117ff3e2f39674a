import { Link } from "@tanstack/react-router";
import css from "./Pages.module.css";

export function PageMissing() {
  return (
    <div className={css.message}>
      <h1>There is no such page</h1>
      <p>
        Its address may have changed. Go to the <Link to="/">fleet</Link> or the{" "}
        <Link to="/jobs">jobs</Link>.
      </p>
    </div>
  );
}
