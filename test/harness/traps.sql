SET check_function_bodies = off;
SET client_min_messages = warning;
CREATE TABLE public.loot (what text, who text DEFAULT current_user);
GRANT ALL ON public.loot TO PUBLIC;
CREATE TYPE public.mood AS ENUM ('PENDING', 'PUBLISHED');

CREATE FUNCTION pg_temp.trap(name text, args oid[], result text) RETURNS void LANGUAGE plpgsql AS $trap$
DECLARE
    list text := (SELECT string_agg(format_type(t, NULL), ', ' ORDER BY n) FROM unnest(args) WITH ORDINALITY AS a(t, n));
BEGIN
    EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', name, list, result,
        format('BEGIN INSERT INTO public.loot VALUES (%L); RETURN%s; END', name || '(' || list || ')',
            CASE WHEN result LIKE 'SETOF%' THEN '' ELSE ' NULL' END));
EXCEPTION WHEN OTHERS THEN NULL; -- there is one, or the types do not make a function
END $trap$;

DO $do$
DECLARE
    f record;
    m record;
    t oid;
    args oid[];
    result text;
    more int;
    types oid[] := '{text,varchar,name,int4,int8,bool,uuid,jsonb,timestamptz,bytea,xid8,pg_lsn,public.mood}'::regtype[]::oid[];
BEGIN
    FOR f IN SELECT p.proname, p.proargtypes::oid[] AS args, p.prorettype, p.proretset, p.provariadic,
            EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p') AS many
        FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.pronargs <= 3 AND p.prokind <> 'p'
        AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[] || p.prorettype) a
            WHERE a IN ('internal'::regtype, 'cstring'::regtype, 'trigger'::regtype, 'event_trigger'::regtype))
    LOOP
        result := CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END || CASE
            WHEN (SELECT typtype FROM pg_type WHERE oid = f.prorettype) = 'p' THEN 'text' ELSE format_type(f.prorettype, NULL) END;
        IF NOT f.many THEN
            PERFORM pg_temp.trap(f.proname, f.args, result);
            FOR m IN SELECT * FROM (VALUES ('text'::regtype::oid, 'varchar'::regtype::oid), ('text'::regtype, 'name'::regtype),
                ('oid'::regtype, 'regclass'::regtype), ('int8'::regtype, 'int4'::regtype), ('numeric'::regtype, 'int8'::regtype),
                ('float8'::regtype, 'int8'::regtype), ('name'::regtype, 'text'::regtype)) v(a, b) WHERE v.a = ANY (f.args) LOOP
                PERFORM pg_temp.trap(f.proname, array_replace(f.args, m.a, m.b), result);
                IF array_length(f.args, 1) > 1 AND f.args[1] = m.a THEN
                    PERFORM pg_temp.trap(f.proname, ARRAY[m.b] || f.args[2:], result);
                END IF;
            END LOOP;
            CONTINUE;
        END IF;
        FOREACH t IN ARRAY types LOOP
            args := ARRAY(SELECT CASE WHEN y.typtype <> 'p' THEN a WHEN y.typname ~ 'array' THEN
                coalesce((SELECT typarray FROM pg_type WHERE oid = t), t) ELSE t END
                FROM unnest(f.args) WITH ORDINALITY AS x(a, n) JOIN pg_type y ON y.oid = a ORDER BY n);
            FOR more IN 0 .. CASE WHEN f.provariadic = 0 THEN 0 ELSE 3 END LOOP
                PERFORM pg_temp.trap(f.proname, args || array_fill(t, ARRAY[more]), result);
                PERFORM pg_temp.trap(f.proname, args || array_fill('text'::regtype::oid, ARRAY[more]), result);
            END LOOP;
        END LOOP;
    END LOOP;
    -- operators: those of the same types, and those of types for which the catalog has only others or any
    FOR f IN SELECT DISTINCT o.oprname, l.t AS l, r.t AS r, o.oprname IN ('||', '+', '-', '*', '/', '->', '->>') AS value
        FROM pg_operator o, unnest(types || '{text[],int8[],uuid[],oid,regclass,numeric,interval}'::regtype[]::oid[]) l(t),
            unnest(types || '{text[],int8[],uuid[],oid,regclass,numeric,interval}'::regtype[]::oid[]) r(t)
        WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprkind = 'b'
        AND o.oprname IN ('=', '<>', '<', '>', '<=', '>=', '~', '~~', '||', '+', '-', '*', '->', '->>')
        AND (l.t = r.t OR l.t IN ('text'::regtype, 'varchar'::regtype, 'name'::regtype, 'timestamptz'::regtype, 'int8'::regtype,
            'oid'::regtype, 'jsonb'::regtype, 'pg_lsn'::regtype) AND r.t IN ('text'::regtype, 'varchar'::regtype, 'name'::regtype, 'int4'::regtype,
            'int8'::regtype, 'interval'::regtype, 'numeric'::regtype, 'regclass'::regtype))
    LOOP
        result := CASE WHEN f.value THEN format_type(f.l, NULL) ELSE 'boolean' END;
        PERFORM pg_temp.trap('operator ' || f.oprname, ARRAY[f.l, f.r], result);
        BEGIN
            EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)', f.oprname,
                format_type(f.l, NULL), format_type(f.r, NULL), 'operator ' || f.oprname);
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
END $do$;
