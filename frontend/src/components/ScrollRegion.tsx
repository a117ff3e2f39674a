import type { ReactNode, Ref } from "react";
import css from "./ScrollRegion.module.css";

interface ScrollRegionProps {
  /** What is in it; a region that scrolls is a tab stop, and says what it is. */
  label: string;
  children: ReactNode;
  className?: string;
  ref?: Ref<HTMLDivElement>;
}

/** Content that scrolls by itself, reachable by keyboard. */
export function ScrollRegion({ label, children, className = "", ref }: ScrollRegionProps) {
  return (
    <div
      ref={ref}
      className={`${css.region} ${className}`}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: without it the keyboard can't scroll it
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      {children}
    </div>
  );
}
