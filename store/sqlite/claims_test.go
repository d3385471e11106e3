package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
)

// TestOneProcessOwnsTheClaims: a claim that another process holds may be held
// by a handler that runs. When that process is gone, its claims are released.
func TestOneProcessOwnsTheClaims(t *testing.T) {
	ctx, path := context.Background(), newPath(t)
	first, _ := openPath(t, path, sqlite.Options{})
	claims, err := first.Claims(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := first.Claims(ctx); err != nil || again != claims {
		t.Errorf("asked again: %v, %v", again, err)
	}
	_, heldToken, err := claims.Claim(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := claims.Claim(ctx, "completed")
	if err != nil {
		t.Fatal(err)
	}
	if err := claims.Complete(ctx, "completed", token); err != nil {
		t.Fatal(err)
	}

	second, _ := openPath(t, path, sqlite.Options{})
	_, err = second.Claims(ctx)
	if err == nil || !errors.Is(err, ichido.ErrUnavailable) || !strings.Contains(err.Error(), "another process owns the inline claims") {
		t.Errorf("beside a living owner: %v", err)
	}
	if st, err := second.Stats(ctx); err != nil || st.Pending != 1 {
		t.Errorf("%d claims are held, %v", st.Pending, err)
	}

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	now, err := second.Claims(ctx)
	if err != nil {
		t.Fatalf("after its end: %v", err)
	}
	if v, _, err := now.Claim(ctx, "completed"); err != nil || v != ichido.Duplicate {
		t.Errorf("a completed claim of the first owner: %v, %v", v, err)
	}
	if err := now.Complete(ctx, "held", heldToken); !errors.Is(err, ichido.ErrLeaseLost) {
		t.Errorf("the token of the first owner: %v", err)
	}
	if v, _, err := now.Claim(ctx, "held"); err != nil || v != ichido.Accepted {
		t.Errorf("a claim that the first owner left: %v, %v", v, err)
	}
}

// TestManyClaimsPastTheirRetention are removed in bounded steps, and the key
// that is asked for at once.
func TestManyClaimsPastTheirRetention(t *testing.T) {
	ctx := context.Background()
	s, db := openPath(t, newPath(t), sqlite.Options{})
	_, err := db.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
		INSERT INTO ichido_claims SELECT 'k' || i, 't', 'o', i, i FROM n`)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claims(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k1200", "k600", "k1"} {
		if v, _, err := claims.Claim(ctx, key); err != nil || v != ichido.Accepted {
			t.Errorf("claim %s: %v, %v", key, v, err)
		}
	}
	var left int
	if err := db.QueryRow("SELECT count(*) FROM ichido_claims WHERE completed_at IS NOT NULL").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d are left, %v", left, err)
	}
}
